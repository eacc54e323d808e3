"""What speaks for each regime: one score over the rows of a window, read off the buckets alone.

A row holds the numbers of one step by `KEYS`. How far a bound binds is the clipped share and the weight that this takes
or leaves; `dispo_gap` is the gradient mass that DISPO's bounds would add on the same tokens, which shows a bound that
is missing and so clips nothing. Weights of the signs: `[core]` of rules.toml, `driver_*`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regimescope.detectors.core import logit, median
from regimescope.detectors.declared import Declared
from regimescope.detectors.types import REGIMES

_COLUMNS = (
    "token_frac", "grad_mass", "weight_mean", "clip_gap", "clip_high_frac", "clip_low_frac", "dispo_gap",
    "log_ratio_mean", "entropy_effect",
)  # fmt: skip
PUSH = ("grad_norm", "kl_step")
REGIME_KEYS = tuple(f"{regime}.{column}" for regime in REGIMES for column in _COLUMNS)
KEYS = (*REGIME_KEYS, *PUSH)

Row = tuple[float | None, ...]


@dataclass(slots=True, kw_only=True)
class Score:
    """What speaks for one regime."""

    regime: str
    total: float = 0.0
    token_share: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    "Clipped share of its tokens, by side."
    binds: dict[str, bool] = field(default_factory=dict)
    "Whether that side holds enough tokens, and enough of their weight."
    gap: float = 0.0
    "Gradient mass that DISPO's bounds would add, over all; 0 where it is small or not logged."
    numbers: dict[str, float | None] = field(default_factory=dict)
    signs: list[str] = field(default_factory=list)

    def evidence(self) -> dict[str, float | str | bool | None]:
        numbers: dict[str, float | str | bool | None] = {
            f"{self.regime}.{name}": value for name, value in self.numbers.items() if value is not None
        }
        return {**numbers, "driver_signs": ", ".join(self.signs)}

    def count(self, points: float, sign: str) -> None:
        self.total += points
        self.signs.append(sign)


def score_of(
    regime: str,
    rows: Sequence[tuple[int, Row]],
    bounds_step: int,
    declared: Declared,
    core: Mapping[str, float],
    entropy: int,
) -> Score:
    score = Score(regime=regime)
    if declared.off("pos" if regime in ("R1", "R2") else "neg"):  # its tokens pull on nothing
        return score
    tokens = present(rows, regime, "token_frac")
    score.token_share = sum(tokens) / len(tokens) if tokens else 1.0  # unknown: nothing speaks against it
    if score.token_share < core["driver_share"]:
        return score
    _weigh_bounds(score, [row for row in rows if row[0] >= bounds_step], declared, core, entropy)
    masses = present(rows, regime, "grad_mass") or tokens
    score.numbers["grad_mass"] = masses[-1] if masses else None
    if len(masses) > 1 and logit(late(masses)) - logit(soon(masses)) > core["driver_shift"]:
        score.count(core["driver_mass"], "pulls more")
    ratios = present(rows, regime, "log_ratio_mean")
    score.numbers["log_ratio_mean"] = ratios[-1] if ratios else None
    if len(ratios) > 1 and abs(late(ratios)) > max(0.01, 2 * abs(soon(ratios))):
        score.count(core["driver_ratio"], "log r doubled")
    if entropy and _holds_entropy(regime, rows, entropy):
        score.numbers["entropy_effect"] = sum(present(rows, regime, "entropy_effect"))
        score.count(core["driver_entropy"], "entropy effect")
    return score


def pushed_by(rows: Sequence[tuple[int, Row]]) -> dict[str, float]:
    """By which factor gradient norm and KL rose over the window; empty unless both are there."""
    factors = {}
    for name in PUSH:
        values = [v for _, row in rows if (v := row[KEYS.index(name)]) is not None and math.isfinite(v)]
        if len(values) < 2 or soon(values) <= 0:
            return {}
        factors[name] = late(values) / soon(values)
    return factors


def _weigh_bounds(
    score: Score, rows: Sequence[tuple[int, Row]], declared: Declared, core: Mapping[str, float], entropy: int
) -> None:
    """How far the bounds bind: the clipped share and the weight that this takes or leaves; and the gap to DISPO's."""
    movable = declared.bases.get("pos" if score.regime in ("R1", "R2") else "neg") != "1"
    held = [value for row in rows if (value := _held(row, score.regime)) is not None]
    mass = median(held) if held else None  # None: not logged, nothing speaks against it
    for side in ("high", "low"):
        shares = present(rows, score.regime, f"clip_{side}_frac")
        share = score.shares[side] = sum(shares) / len(shares) if shares else 0.0
        score.numbers[f"clip_{side}_frac"] = share if shares else None
        score.binds[side] = movable and share > core["binds"] and (mass is None or mass > core["driver_weight"])
    gaps = present(rows, score.regime, "dispo_gap")
    gap = median(gaps) if gaps else 0.0
    off = movable and abs(gap) > core["driver_weight"]
    if any(score.binds.values()):
        score.numbers["held_mass"] = mass
    if any(score.binds.values()) and (off or entropy or not gaps):  # at DISPO's own value a bound does what it is for
        share = max(share for side, share in score.shares.items() if score.binds[side])
        sides = " and ".join(side for side, binds in score.binds.items() if binds)
        score.count(max(core["driver_least"], core["driver_binds"] * share), f"clipped {sides}")
    if off:
        score.gap = score.numbers["dispo_gap"] = gap
        score.count(core["driver_gap"], "weights differ from DISPO's")


def _held(row: tuple[int, Row], regime: str) -> float | None:
    """Weight that clipping takes or leaves in a regime, over the weight of all four; None: not logged."""
    weights = [(finite(row[1], name, "weight_mean"), finite(row[1], name, "token_frac")) for name in REGIMES]
    whole = sum(weight * share for weight, share in weights if weight is not None and share is not None)
    gap, share = finite(row[1], regime, "clip_gap"), finite(row[1], regime, "token_frac")
    return abs(gap) * share / whole if gap is not None and share is not None and whole > 0 else None


def _holds_entropy(regime: str, rows: Sequence[tuple[int, Row]], sign: int) -> bool:
    sums = {name: sign * sum(present(rows, name, "entropy_effect")) for name in REGIMES}
    return sums[regime] > 0 and sums[regime] == max(sums.values())


def finite(row: Row, regime: str, column: str) -> float | None:
    value = row[REGIMES.index(regime) * len(_COLUMNS) + _COLUMNS.index(column)]
    return value if value is not None and math.isfinite(value) else None


def present(rows: Sequence[tuple[int, Row]], regime: str, column: str) -> list[float]:
    return [value for _, row in rows if (value := finite(row, regime, column)) is not None]


def soon(values: Sequence[float]) -> float:
    first = values[: min(3, len(values) // 2)]
    return sum(first) / len(first)


def late(values: Sequence[float]) -> float:
    return sum(values[-2:]) / len(values[-2:])
