"""What the run has declared about itself in start and bounds_changed events."""

from __future__ import annotations

from regimescope.detectors.types import Event

BOUNDS = ("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max")
_LIMITS = tuple(f"{name}.limits" for name in BOUNDS)


class Declared:
    """Objective, framework, ratio source, bounds and their limits by name, base of the weight per sign; None or absent
    where nothing was said."""

    __slots__ = ("bases", "bounds", "framework", "limits", "objective", "ratio_source", "revision", "version")

    def __init__(self) -> None:
        self.objective: str | None = None
        self.framework: str | None = None
        self.ratio_source: str | None = None
        self.bounds: dict[str, float] = {}
        self.limits: dict[str, tuple[float, float]] = {}
        self.bases: dict[str, str] = {}
        self.revision: int | None = None
        self.version = 0  # rises with every event taken

    def take(self, event: Event) -> None:
        """Keeps what the event does not mention."""
        self.version += 1
        for key, value in event.data.items():
            if key in ("objective", "framework", "ratio_source") and isinstance(value, str):
                setattr(self, key, value)
            elif key == "revision" and isinstance(value, int):
                self.revision = value
            elif key in ("pos.base", "neg.base") and isinstance(value, str):
                self.bases[key[:3]] = value
            elif key in BOUNDS and isinstance(value, int | float):
                self.bounds[key] = float(value)
            elif key in _LIMITS and isinstance(value, tuple | list):
                low, high = value
                self.limits[key.removesuffix(".limits")] = (float(low), float(high))

    @property
    def clip_is_evidence(self) -> bool:
        """Clip shares of a ratio to a policy that generated nothing say nothing."""
        return self.ratio_source != "proximal"

    def off(self, sign: str) -> bool:
        """The side has weight 0: its tokens pull on nothing."""
        return self.bounds.get(f"{sign}.w_max") == 0

    def fixed(self, sign: str) -> bool:
        """The side has no bounds to move: it is switched off, its weight is a constant, or the trainer that names
        limits names none for it."""
        named = not self.limits or any(name.startswith(sign) for name in self.limits)
        return self.off(sign) or self.bases.get(sign) == "1" or not named

    def within(self, bound: str, target: float) -> float:
        """The target, moved into the limits that the trainer declared."""
        low, high = self.limits.get(bound, (target, target))
        return min(max(target, low), high)
