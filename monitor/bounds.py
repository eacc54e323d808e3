"""The importance weight as data: rule, bounds and limits, one side per sign of the advantage.

`WeightRule` says how the weight w is made from the importance ratio r, `Bounds` are its active limits [w_min, w_max],
`Limits` is the range of bounds that a trainer accepts in a command. All are absolute weights; eps_low = 1 - w_min and
eps_high = w_max - 1 are views. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from regimescope.monitor.errors import BoundsError, WireError
from regimescope.monitor.wire import number

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
        """From `{"pos": [w_min, w_max], "neg": [...]}`, numbers as on the wire ("Infinity"). Raises BoundsError."""
        try:
            (pos_min, pos_max), (neg_min, neg_max) = ([number(x) for x in wire[sign]] for sign in ("pos", "neg"))
        except (KeyError, TypeError, ValueError) as error:
            want = "{'pos': [w_min, w_max], 'neg': [w_min, w_max]}"
            raise BoundsError(f"bounds {wire!r}: want {want} ({error})") from None
        return cls(pos=SignBounds(w_min=pos_min, w_max=pos_max), neg=SignBounds(w_min=neg_min, w_max=neg_max))

    def to_wire(self) -> dict[str, list[float]]:
        """The inverse of from_wire; infinity stays a float (the encoder of the wire spells it)."""
        return {"pos": [self.pos.w_min, self.pos.w_max], "neg": [self.neg.w_min, self.neg.w_max]}

    def with_values(self, values: Mapping[str, float]) -> Bounds:
        """Some of the four replaced; keys "pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max". Raises BoundsError."""
        sides: dict[str, dict[str, float]] = {"pos": {}, "neg": {}}
        for key, value in values.items():
            sign, _, name = key.partition(".")
            if sign not in sides or name not in ("w_min", "w_max"):
                raise BoundsError(f"no such bound {key!r}; want pos.w_min, pos.w_max, neg.w_min or neg.w_max")
            sides[sign][name] = float(value)
        return Bounds(pos=replace(self.pos, **sides["pos"]), neg=replace(self.neg, **sides["neg"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignRule:
    """How the weight of a token is made for one sign: base, clamped to the caps, 0 outside the drops. None = none.

    Raises BoundsError for an unknown base and for limits that are no bounds.
    """

    base: Base = "r"
    "r: importance ratio of the token, s: of the whole sequence, 1/r, or 1: constant, then there is no bound to move."
    cap_low: float | None = None
    "The base is raised to it."
    cap_high: float | None = None
    "The base is lowered to it."
    drop_below: float | None = None
    "In r (or s): below it w = 0."
    drop_above: float | None = None
    "In r (or s): above it w = 0."

    def __post_init__(self) -> None:
        if self.base not in get_args(Base):
            raise BoundsError(f"weight rule with base {self.base!r}: want one of {', '.join(get_args(Base))}")
        for low, high in ((self.cap_low, self.cap_high), (self.drop_below, self.drop_above)):
            _between(low, high)
        _ = self.bounds  # a cap with the drop of the other side

    @property
    def bounds(self) -> SignBounds:
        """The active limits: a cap, else a drop; none = 0 and infinity."""
        low = self.cap_low if self.cap_low is not None else self.drop_below
        high = self.cap_high if self.cap_high is not None else self.drop_above
        return _between(low, high)

    def with_bounds(self, bounds: SignBounds) -> SignRule:
        """The same rule with its active limits moved: drops where the rule only drops, else caps.

        Raises BoundsError.
        """
        changes: dict[str, float] = {}
        if bounds.w_min != self.bounds.w_min:
            changes["cap_low" if self.cap_low is not None or self.drop_below is None else "drop_below"] = bounds.w_min
        if bounds.w_max != self.bounds.w_max:
            changes["cap_high" if self.cap_high is not None or self.drop_above is None else "drop_above"] = bounds.w_max
        numbers = {name: getattr(self, name) for name in _RULE_NUMBERS}
        return SignRule(base=self.base, **{**numbers, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """The weight rule of an objective, one per sign of the advantage."""

    pos: SignRule
    "A > 0."
    neg: SignRule
    "A < 0."

    @property
    def bounds(self) -> Bounds:
        """The active limits of both signs."""
        return Bounds(pos=self.pos.bounds, neg=self.neg.bounds)

    def with_bounds(self, bounds: Bounds) -> WeightRule:
        """The same rule with other active limits. Raises BoundsError."""
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
            return cls(pos=_sign_rule(wire["pos"]), neg=_sign_rule(wire["neg"]))
        except (KeyError, TypeError, AttributeError, WireError) as error:
            raise BoundsError(f"weight rule {wire!r}: {error!r}") from None

    def to_wire(self) -> dict[str, dict[str, Any]]:
        """The inverse of from_wire; infinity stays a float."""
        return {
            sign: {"base": rule.base, **{name: getattr(rule, name) for name in _RULE_NUMBERS}}
            for sign, rule in (("pos", self.pos), ("neg", self.neg))
        }


_RULE_NUMBERS = ("cap_low", "cap_high", "drop_below", "drop_above")


def _between(low: float | None, high: float | None) -> SignBounds:
    return SignBounds(w_min=0.0 if low is None else low, w_max=math.inf if high is None else high)


def _sign_rule(wire: Mapping[str, Any]) -> SignRule:
    numbers = {name: None if wire.get(name) is None else number(wire[name]) for name in _RULE_NUMBERS}
    return SignRule(base=wire["base"], **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignLimits:
    """Accepted range of each bound of one sign, inclusive, absolute weights.

    Raises BoundsError for a range upside down.
    """

    w_min: tuple[float, float] = (0.0, 1.0)
    "Least and greatest lower bound."
    w_max: tuple[float, float] = (1.0, 101.0)
    "Least and greatest upper bound; infinity = as high as you like."

    def __post_init__(self) -> None:
        for name, (low, high) in (("w_min", self.w_min), ("w_max", self.w_max)):
            if not 0 <= low <= high:  # NaN fails every comparison
                raise BoundsError(f"limits of {name} [{low:g}, {high:g}]: want 0 <= low <= high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a trainer accepts in a command. None for a sign whose weight has base 1: it has no bounds to move."""

    pos: SignLimits | None = SignLimits()
    "A > 0."
    neg: SignLimits | None = SignLimits()
    "A < 0."
    max_factor: float = 2.0
    "Largest change of a positive bound per command of `guard`, >= 1; people are not limited."
    min_steps: int = 10
    "Least number of steps between two such commands of `guard`."

    def __post_init__(self) -> None:
        if not (self.max_factor >= 1 and self.min_steps >= 0):
            raise BoundsError(f"limits: max_factor={self.max_factor:g} must be >= 1, min_steps={self.min_steps} >= 0")

    @classmethod
    def for_rule(cls, rule: WeightRule) -> Limits:
        """The default limits, fitted to a rule: none for base 1, no upper end where the rule has no upper limit."""
        return cls(pos=_fitting(rule.pos), neg=_fitting(rule.neg))

    def problems(self, bounds: Bounds) -> list[str]:
        """What is wrong with these bounds, one sentence each; empty = inside."""
        found = []
        for sign, limits, side in (("pos", self.pos, bounds.pos), ("neg", self.neg, bounds.neg)):
            if limits is None:
                continue
            for name in ("w_min", "w_max"):
                value, (low, high) = getattr(side, name), getattr(limits, name)
                if not low <= value <= high:
                    found.append(f"{sign}.{name} = {value:g} is outside the limits [{low:g}, {high:g}]")
        return found

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Limits:
        """From the `limits` of a header line. Raises BoundsError."""
        try:
            factor, steps = number(wire.get("max_factor", 2.0)), wire.get("min_steps", 10)
            return cls(
                pos=_sign_limits(wire.get("pos")),
                neg=_sign_limits(wire.get("neg")),
                max_factor=factor,
                min_steps=int(steps),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise BoundsError(f"limits {wire!r}: {error}") from None

    def to_wire(self) -> dict[str, Any]:
        """The inverse of from_wire; infinity stays a float."""
        sides = {
            sign: None if side is None else {"w_min": list(side.w_min), "w_max": list(side.w_max)}
            for sign, side in (("pos", self.pos), ("neg", self.neg))
        }
        return {**sides, "max_factor": self.max_factor, "min_steps": self.min_steps}


def _fitting(rule: SignRule) -> SignLimits | None:
    if rule.base == "1":
        return None
    return SignLimits(w_max=(1.0, math.inf)) if math.isinf(rule.bounds.w_max) else SignLimits()


def _sign_limits(wire: Mapping[str, Any] | None) -> SignLimits | None:
    if wire is None:
        return None
    (low, high), (lowest, highest) = ([number(x) for x in wire[name]] for name in ("w_min", "w_max"))
    return SignLimits(w_min=(low, high), w_max=(lowest, highest))
