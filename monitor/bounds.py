"""The importance weight as data: rule, bounds and limits, one side per sign of the advantage.

`WeightRule` says how the weight w is made from the importance ratio r, `Bounds` are its active limits [w_min, w_max], `Limits` is the range of
bounds that a trainer accepts in a command. All absolute weights; eps_low = 1 - w_min and eps_high = w_max - 1 are views. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from regimescope.monitor.errors import BoundsError

Base = Literal["r", "1/r", "s", "1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignBounds:
    """Active limits of the weight for one sign of the advantage."""

    w_min: float
    "Lowest weight, >= 0; 0 = no lower bound."
    w_max: float
    "Highest weight, >= w_min; infinity = no upper bound."

    def __post_init__(self) -> None:
        if not (math.isfinite(self.w_min) and 0 <= self.w_min <= self.w_max):  # NaN fails every comparison
            raise BoundsError(f"bounds [{self.w_min}, {self.w_max}]: w_min must be finite, >= 0 and at most w_max")

    @property
    def eps_low(self) -> float:
        """1 - w_min, rounded to 12 digits."""
        return round(1 - self.w_min, 12)

    @property
    def eps_high(self) -> float:
        """w_max - 1, rounded to 12 digits."""
        return round(self.w_max - 1, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The four bounds in force: a pair per sign of the advantage.

    >>> Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]}).pos.eps_high
    10.0
    """

    pos: SignBounds
    "A > 0: w_max bounds R1, w_min bounds R2."
    neg: SignBounds
    "A < 0: w_max bounds R3, w_min bounds R4."

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Bounds:
        """From `{"pos": [w_min, w_max], "neg": [...]}`; numbers may be the strings of the wire ("Infinity"). Raises BoundsError."""
        try:
            sides = {sign: [float(x) for x in wire[sign]] for sign in ("pos", "neg")}
            (pos_min, pos_max), (neg_min, neg_max) = sides["pos"], sides["neg"]
        except (KeyError, TypeError, ValueError) as error:
            raise BoundsError(f"bounds {wire!r}: want {{'pos': [w_min, w_max], 'neg': [w_min, w_max]}} ({error})") from None
        return cls(pos=SignBounds(w_min=pos_min, w_max=pos_max), neg=SignBounds(w_min=neg_min, w_max=neg_max))

    def to_wire(self) -> dict[str, list[float]]:
        """The inverse of from_wire; infinity stays a float (the encoder of the wire spells it)."""
        return {"pos": [self.pos.w_min, self.pos.w_max], "neg": [self.neg.w_min, self.neg.w_max]}

    def with_values(self, values: Mapping[str, float]) -> Bounds:
        """Some of the four replaced, by the keys "pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max". Raises BoundsError."""
        sides: dict[str, dict[str, float]] = {"pos": {}, "neg": {}}
        for key, value in values.items():
            sign, _, name = key.partition(".")
            if sign not in sides or name not in ("w_min", "w_max"):
                raise BoundsError(f"no such bound {key!r}; want pos.w_min, pos.w_max, neg.w_min or neg.w_max")
            sides[sign][name] = float(value)
        return Bounds(pos=replace(self.pos, **sides["pos"]), neg=replace(self.neg, **sides["neg"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignRule:
    """How the weight of a token is made for one sign: base, clamped to the caps, 0 outside the drops. None = none."""

    base: Base = "r"
    "r: importance ratio of the token, 1/r, s: ratio of the whole sequence, 1: constant (then there is no bound to move)."
    cap_low: float | None = None
    cap_high: float | None = None
    drop_below: float | None = None
    "In r (or s): below it w = 0."
    drop_above: float | None = None

    @property
    def bounds(self) -> SignBounds:
        """The active limits: a cap, else a drop; none = 0 and infinity."""
        low = self.cap_low if self.cap_low is not None else self.drop_below
        high = self.cap_high if self.cap_high is not None else self.drop_above
        return SignBounds(w_min=0.0 if low is None else low, w_max=math.inf if high is None else high)

    def with_bounds(self, bounds: SignBounds) -> SignRule:
        """The same rule with its active limits moved: caps where the rule caps, drops where it drops."""
        changes: dict[str, float] = {}
        low_field = "cap_low" if self.cap_low is not None or self.drop_below is None else "drop_below"
        high_field = "cap_high" if self.cap_high is not None or self.drop_above is None else "drop_above"
        changes[low_field], changes[high_field] = bounds.w_min, bounds.w_max
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """The weight rule of an objective, one per sign of the advantage."""

    pos: SignRule
    neg: SignRule

    @property
    def bounds(self) -> Bounds:
        return Bounds(pos=self.pos.bounds, neg=self.neg.bounds)

    def with_bounds(self, bounds: Bounds) -> WeightRule:
        return WeightRule(pos=self.pos.with_bounds(bounds.pos), neg=self.neg.with_bounds(bounds.neg))

    @classmethod
    def capped(cls, bounds: Bounds) -> WeightRule:
        """Base r, clamped at the bounds on both signs: CISPO and DISPO (arXiv 2506.13585 eq. 4, 2602.00983)."""
        return cls(
            pos=SignRule(cap_low=bounds.pos.w_min, cap_high=bounds.pos.w_max),
            neg=SignRule(cap_low=bounds.neg.w_min, cap_high=bounds.neg.w_max),
        )

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> WeightRule:
        """From the `rule` of a header line. Raises BoundsError."""
        try:
            sides = {
                sign: SignRule(
                    base=wire[sign]["base"],
                    **{k: None if wire[sign].get(k) is None else float(wire[sign][k]) for k in _RULE_NUMBERS},
                )
                for sign in ("pos", "neg")
            }
        except (KeyError, TypeError, ValueError) as error:
            raise BoundsError(f"weight rule {wire!r}: {error!r}") from None
        return cls(**sides)

    def to_wire(self) -> dict[str, dict[str, Any]]:
        return {sign: {"base": rule.base, **{k: getattr(rule, k) for k in _RULE_NUMBERS}} for sign, rule in self._sides()}

    def _sides(self) -> tuple[tuple[str, SignRule], tuple[str, SignRule]]:
        return ("pos", self.pos), ("neg", self.neg)


_RULE_NUMBERS = ("cap_low", "cap_high", "drop_below", "drop_above")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignLimits:
    """Accepted range of each bound of one sign, inclusive, absolute weights."""

    w_min: tuple[float, float] = (0.0, 1.0)
    w_max: tuple[float, float] = (1.0, 101.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a trainer accepts in a command. None for a sign whose weight has base 1: it has no bounds to move."""

    pos: SignLimits | None = SignLimits()
    neg: SignLimits | None = SignLimits()
    max_factor: float = 2.0
    "Largest change of a positive bound per command of `guard`; people are not limited."
    min_steps: int = 10
    "Least number of steps between two such commands of `guard`."

    def problems(self, bounds: Bounds) -> list[str]:
        """What is wrong with these bounds, one sentence each; empty = inside."""
        found = []
        for sign, limits, side in (("pos", self.pos, bounds.pos), ("neg", self.neg, bounds.neg)):
            for name in ("w_min", "w_max"):
                value = getattr(side, name)
                if limits is None:
                    continue
                low, high = getattr(limits, name)
                if not low <= value <= high:
                    found.append(f"{sign}.{name} = {value:g} is outside the limits [{low:g}, {high:g}]")
        return found

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Limits:
        """From the `limits` of a header line. Raises BoundsError."""
        try:
            sides = {
                sign: None
                if wire.get(sign) is None
                else SignLimits(**{name: (float(wire[sign][name][0]), float(wire[sign][name][1])) for name in ("w_min", "w_max")})
                for sign in ("pos", "neg")
            }
            return cls(**sides, max_factor=float(wire.get("max_factor", 2.0)), min_steps=int(wire.get("min_steps", 10)))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BoundsError(f"limits {wire!r}: {error!r}") from None

    def to_wire(self) -> dict[str, Any]:
        sides = {
            sign: None if side is None else {"w_min": list(side.w_min), "w_max": list(side.w_max)}
            for sign, side in (("pos", self.pos), ("neg", self.neg))
        }
        return {**sides, "max_factor": self.max_factor, "min_steps": self.min_steps}
