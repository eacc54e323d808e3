"""The driver: the signature says what fails, the buckets say which regime pulls. And which bound to move, if it binds.

`BucketHistory` keeps the last points of the four regimes; `drive` scores each regime over the points from onset - 5 to
now: its bound binds, its gradient mass or token share moved, its mean log r doubled, it holds the largest entropy
effect of the right sign.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regimescope.detectors.core import logit
from regimescope.detectors.declared import Declared
from regimescope.detectors.rules import Rules
from regimescope.detectors.types import REGIMES, Direction, Evidence, Remedy

_COLUMNS = ("token_frac", "grad_mass", "clip_high_frac", "clip_low_frac", "log_ratio_mean", "entropy_effect")
KEYS = tuple(f"{regime}.{column}" for regime in REGIMES for column in _COLUMNS)
_KEPT = 64
_BEFORE = 5  # steps before the onset that serve as reference

Row = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of one bound that helps when `regime` drives the failure."""

    regime: str
    "R1 .. R4."
    side: str | None = None
    "high, low: proposed only where that clip share of the regime binds. None: a tightening, which nothing holds up."
    entropy: bool = False
    "Proposed only where the regime holds the largest entropy effect of the failure's sign."
    bound: str
    "Name of the bound."
    direction: Direction
    "raise or lower."
    target: float
    "Absolute weight."
    text: str | None = None
    "Key of the texts, where the one of bound and direction does not fit."

    def open(self, declared: Declared) -> bool:
        """Whether the bound is not yet at its target, as far as is known."""
        value = declared.bounds.get(self.bound)
        if value is None:
            return True
        return value > self.target if self.direction == "lower" else value < self.target


RELAX_NEGATIVE = (
    Move(regime="R4", side="low", bound="neg.w_min", direction="lower", target=0.0),
    Move(regime="R3", side="high", bound="neg.w_max", direction="raise", target=101.0),
)
"Repetition and length collapse; DISPO (2602.00983), ablation of the negative pair."


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The regime, the evidence for it, and the remedy."""

    regime: str | None = None
    "R1 .. R4; None without evidence."
    evidence: Evidence = field(default_factory=dict)
    "Bucket numbers behind it."
    remedy: Remedy
    "A bound only if it binds."


class BucketHistory:
    """The regimes' numbers of the last points that had any; a fixed number of points."""

    __slots__ = ("_rows", "bounds_step")

    def __init__(self) -> None:
        self._rows: deque[tuple[int, Row]] = deque(maxlen=_KEPT)
        self.bounds_step = -1  # first step under the bounds in force

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        row = tuple(map(metrics.get, KEYS))
        if row.count(None) < len(KEYS):
            self._rows.append((step, row))

    def forget_from(self, step: int) -> None:
        """A resume or rollback: rows from `step` on are superseded."""
        self._rows = deque((row for row in self._rows if row[0] < step), maxlen=_KEPT)

    def between(self, first: int, last: int) -> list[tuple[int, Row]]:
        return [row for row in self._rows if first <= row[0] <= last]

    def largest_entropy_effect(self) -> float | None:
        """The regime sum of the largest size at the newest point that has any, with its sign."""
        for _, row in reversed(self._rows):
            effects = [effect for regime in REGIMES if (effect := _finite(row, regime, "entropy_effect")) is not None]
            if effects:
                return max(effects, key=abs)
        return None

    def entropy_effect(self, regime: str, first: int) -> float | None:
        """Sum of a regime's measured entropy effect since step `first`; None: it is not logged."""
        effects = _present([row for row in self._rows if row[0] >= first], regime, "entropy_effect")
        return sum(effects) if effects else None

    def on_policy(self) -> bool:
        """Every ratio of the newest point is 1: there is nothing in any regime."""
        if not self._rows:
            return False
        shares = [_finite(self._rows[-1][1], regime, "token_frac") for regime in REGIMES]
        return all(share == 0 for share in shares)


def drive(
    history: BucketHistory,
    declared: Declared,
    rules: Rules,
    *,
    onset: int,
    step: int,
    moves: Sequence[Move],
    otherwise: str,
    entropy: int = 0,
) -> Driver:
    """The driver of a failure that began at `onset` and is looked at in `step`, and its remedy.

    `moves`: bounds that can help; `otherwise`: remedy when none binds; `entropy`: +1, -1 where the failure has a sign
    of entropy.
    """
    rows = history.between(onset - _BEFORE, step)
    if not rows:
        return Driver(remedy=Remedy(text=rules.texts["no_evidence"]))
    scores = {regime: _score(regime, rows, history, declared, rules.core, entropy) for regime in REGIMES}
    found = {regime: score for regime, score in scores.items() if score.total > 0}
    if not found:
        return Driver(remedy=Remedy(text=otherwise))
    proposals = [move for move in moves if move.regime in found and _helps(move, found, declared)]
    if proposals:
        move = max(proposals, key=lambda move: (found[move.regime].total, found[move.regime].share(move.side)))
        regime = move.regime
        share = f"{100 * found[regime].share(move.side):.0f}"
        text = rules.texts[move.text or f"{move.bound.replace('.', '_')}_{move.direction}"].format(share=share)
        remedy = Remedy(bound=move.bound, direction=move.direction, target=move.target, text=text)
    else:
        regime = max(found, key=lambda regime: (found[regime].total, found[regime].token_share))
        remedy = Remedy(text=otherwise)
    return Driver(regime=regime, evidence=found[regime].evidence(regime), remedy=remedy)


@dataclass(slots=True, kw_only=True)
class _Score:
    total: float = 0.0
    high: float = 0.0
    low: float = 0.0
    binds: dict[str, bool] = field(default_factory=dict)
    token_share: float = 0.0
    numbers: dict[str, float | None] = field(default_factory=dict)
    signs: list[str] = field(default_factory=list)

    def share(self, side: str | None) -> float:
        return self.high if side == "high" else self.low if side == "low" else 0.0

    def evidence(self, regime: str) -> dict[str, float | str | bool | None]:
        numbers: dict[str, float | str | bool | None] = {
            f"{regime}.{name}": value for name, value in self.numbers.items() if value is not None
        }
        return {**numbers, "driver_signs": ", ".join(self.signs)}


def _helps(move: Move, found: Mapping[str, _Score], declared: Declared) -> bool:
    if not move.open(declared):
        return False
    score = found[move.regime]
    if move.entropy and "entropy_effect" not in score.signs:
        return False
    return move.side is None or score.binds.get(move.side, False)


def _score(
    regime: str,
    rows: Sequence[tuple[int, Row]],
    history: BucketHistory,
    declared: Declared,
    core: Mapping[str, float],
    entropy: int,
) -> _Score:
    score = _Score()
    sign = "pos" if regime in ("R1", "R2") else "neg"
    if declared.bounds.get(f"{sign}.w_max") == 0:  # switched off: its tokens pull on nothing
        return score
    tokens = _present(rows, regime, "token_frac")
    score.token_share = sum(tokens) / len(tokens) if tokens else 1.0  # unknown: nothing speaks against it
    if score.token_share < core["driver_share"]:
        return score
    in_force = [row for row in rows if row[0] >= history.bounds_step]
    for side in ("high", "low"):
        shares = _present(in_force, regime, f"clip_{side}_frac")
        share = sum(shares) / len(shares) if shares else 0.0
        score.numbers[f"clip_{side}_frac"] = share if shares else None
        movable = declared.bases.get(sign) != "1"
        score.binds[side] = share > core["binds"] and declared.clip_is_evidence and movable
        if side == "high":
            score.high = share
        else:
            score.low = share
    if any(score.binds.values()):
        score.total += core["driver_binds"]
        score.signs.append("clipped " + " and ".join(side for side, binds in score.binds.items() if binds))
    masses = [_present(rows, regime, name) for name in ("grad_mass", "token_frac")]
    score.numbers["grad_mass"] = masses[0][-1] if masses[0] else None
    if any(len(x) > 1 and abs(logit(_late(x)) - logit(_soon(x))) > core["driver_shift"] for x in masses):
        score.total += core["driver_mass"]
        score.signs.append("mass moved")
    ratios = _present(rows, regime, "log_ratio_mean")
    score.numbers["log_ratio_mean"] = ratios[-1] if ratios else None
    if len(ratios) > 1 and abs(_late(ratios)) > max(0.01, 2 * abs(_soon(ratios))):
        score.total += core["driver_ratio"]
        score.signs.append("log r doubled")
    if entropy and _holds_entropy(regime, rows, entropy):
        score.total += core["driver_entropy"]
        score.signs.append("entropy_effect")
    return score


def _holds_entropy(regime: str, rows: Sequence[tuple[int, Row]], sign: int) -> bool:
    sums = {name: sign * sum(_present(rows, name, "entropy_effect")) for name in REGIMES}
    return sums[regime] > 0 and sums[regime] == max(sums.values())


def _finite(row: Row, regime: str, column: str) -> float | None:
    value = row[REGIMES.index(regime) * len(_COLUMNS) + _COLUMNS.index(column)]
    return value if value is not None and math.isfinite(value) else None


def _present(rows: Sequence[tuple[int, Row]], regime: str, column: str) -> list[float]:
    return [value for _, row in rows if (value := _finite(row, regime, column)) is not None]


def _soon(values: Sequence[float]) -> float:
    first = values[: min(3, len(values) // 2)]
    return sum(first) / len(first)


def _late(values: Sequence[float]) -> float:
    return sum(values[-2:]) / len(values[-2:])
