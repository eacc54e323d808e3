"""What the run has declared about itself in start and bounds_changed events."""

from __future__ import annotations

from regimescope.detectors.types import Event


class Declared:
    """Objective, ratio source, bounds by name, base of the weight per sign; None or absent where nothing was said."""

    __slots__ = ("bases", "bounds", "objective", "ratio_source", "revision", "version")

    def __init__(self) -> None:
        self.objective: str | None = None
        self.ratio_source: str | None = None
        self.bounds: dict[str, float] = {}
        self.bases: dict[str, str] = {}
        self.revision: int | None = None
        self.version = 0  # rises with every event taken

    def take(self, event: Event) -> None:
        """Keeps what the event does not mention."""
        self.version += 1
        for key, value in event.data.items():
            if key == "objective" and isinstance(value, str):
                self.objective = value
            elif key == "ratio_source" and isinstance(value, str):
                self.ratio_source = value
            elif key == "revision" and isinstance(value, int):
                self.revision = value
            elif key in ("pos.base", "neg.base") and isinstance(value, str):
                self.bases[key[:3]] = value
            elif key in ("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max") and isinstance(value, int | float):
                self.bounds[key] = float(value)

    @property
    def clip_is_evidence(self) -> bool:
        """Clip shares of a ratio to a policy that generated nothing say nothing."""
        return self.ratio_source != "proximal"
