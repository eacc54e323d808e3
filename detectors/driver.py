"""The driver: the signature says what fails, the buckets say which regime pulls. And which bound to move, if it binds.

`BucketHistory` keeps the last points of the four regimes; `drive` scores each regime over the points from onset - 5 to
now: its bound binds, its weights are not those of DISPO's bounds on the same tokens, it pulls more than before, its
mean log r doubled, it holds the largest entropy effect of the right sign. A name needs a clear lead; else it is
unclear, and the candidates are named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regimescope.detectors.declared import Declared
from regimescope.detectors.rules import Rules
from regimescope.detectors.score import KEYS, REGIME_KEYS, Row, Score, finite, present, pushed_by, score_of
from regimescope.detectors.types import REGIMES, Direction, Evidence, Remedy

_REGIME_COUNT = len(REGIME_KEYS)
_NO_REGIMES = (None,) * _REGIME_COUNT
_KEPT = 64
_BEFORE = 5  # steps before the onset that serve as reference

PAPER: Mapping[str, str] = {
    "repetition_collapse": "R3",
    "length_collapse": "R4",
    "exploration_decay": "R1 or R2",
    "entropy_collapse": "R2",
}
"The cause that DISPO (2602.00983) reports: A<0 held too tightly, or A>0 weighted too much. Shown, never assumed."


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


RELAX_NEGATIVE = (
    Move(regime="R4", side="low", bound="neg.w_min", direction="lower", target=0.0),
    Move(regime="R3", side="high", bound="neg.w_max", direction="raise", target=101.0),
)
"Repetition and length collapse; DISPO (2602.00983), ablation of the negative pair."

PUBLISHED: Mapping[str, tuple[str, float]] = {
    "R1": ("pos.w_max", 11.0),
    "R2": ("pos.w_min", 0.8),
    "R3": ("neg.w_max", 101.0),
    "R4": ("neg.w_min", 0.0),
}
"The bound of each regime as DISPO publishes it: where to go when the gap to its weights names the driver."


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The regime, the evidence for it, and the remedy."""

    regime: str | None = None
    "R1 .. R4; None without evidence, or where it cannot decide."
    evidence: Evidence = field(default_factory=dict)
    "`attribution` says how it came about; the bucket numbers behind it."
    remedy: Remedy
    "A bound only if it binds, or is missing."


class BucketHistory:
    """The regimes' numbers of the last points that had any; a fixed number of points."""

    __slots__ = ("_rows", "bounds_step")

    def __init__(self) -> None:
        self._rows: deque[tuple[int, Row]] = deque(maxlen=_KEPT)
        self.bounds_step = -1  # first step under the bounds in force

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        row = tuple(map(metrics.get, KEYS))
        if row[:_REGIME_COUNT] != _NO_REGIMES:
            self._rows.append((step, row))

    def forget_from(self, step: int) -> None:
        """A resume or rollback: rows from `step` on are superseded."""
        self._rows = deque((row for row in self._rows if row[0] < step), maxlen=_KEPT)

    def between(self, first: int, last: int) -> list[tuple[int, Row]]:
        return [row for row in self._rows if first <= row[0] <= last]

    @property
    def seen(self) -> bool:
        """Whether the log has buckets at all."""
        return bool(self._rows)

    def largest_entropy_effect(self) -> float | None:
        """The regime sum of the largest size at the newest point that has any, with its sign."""
        for _, row in reversed(self._rows):
            effects = [effect for regime in REGIMES if (effect := finite(row, regime, "entropy_effect")) is not None]
            if effects:
                return max(effects, key=abs)
        return None

    def entropy_effect(self, regime: str, first: int) -> float | None:
        """Sum of a regime's measured entropy effect since step `first`; None: it is not logged."""
        effects = present([row for row in self._rows if row[0] >= first], regime, "entropy_effect")
        return sum(effects) if effects else None

    def on_policy(self) -> bool:
        """Every ratio of the newest point is 1: there is nothing in any regime."""
        if not self._rows:
            return False
        shares = [finite(self._rows[-1][1], regime, "token_frac") for regime in REGIMES]
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
    signature: str = "",
    entropy: int = 0,
) -> Driver:
    """The driver of a failure that began at `onset` and is looked at in `step`, and its remedy.

    `moves`: bounds that can help; `otherwise`: remedy when none binds; `entropy`: +1, -1 where the failure has a sign
    of entropy.
    """
    paper = PAPER.get(signature)
    known: dict[str, float | str | bool | None] = {} if paper is None else {"paper_expects": paper}
    rows = history.between(onset - _BEFORE, step)
    if not rows:
        text = _nothing_logged(history, declared, rules.texts, paper)
        return Driver(evidence={"attribution": "no buckets", **known}, remedy=Remedy(text=text))
    if not declared.clip_is_evidence:
        text = rules.texts["proximal"]
        return Driver(evidence={"attribution": "ratios proximal", **known}, remedy=Remedy(text=text))
    scores = [score_of(regime, rows, history.bounds_step, declared, rules.core, entropy) for regime in REGIMES]
    ranked = sorted((s for s in scores if s.total > 0), key=lambda s: (s.total, s.token_share), reverse=True)
    of_bounds = any(sign.startswith(("clipped", "weights")) for score in scores for sign in score.signs)
    pushed = None if of_bounds else _diverges(rows, rules)
    if not ranked:
        return Driver(
            evidence={"attribution": "no regime stands out", **known}, remedy=Remedy(text=pushed or otherwise)
        )
    lead, least = rules.core["driver_lead"], rules.core["driver_least"]
    close = [score for score in ranked if ranked[0].total - score.total < lead]
    if len(close) > 1 or ranked[0].total < least:
        names = " or ".join(sorted(score.regime for score in close))
        shown: dict[str, float | str | bool | None] = {"attribution": "unclear", "candidates": names, **known}
        for score in close:
            shown |= {name: value for name, value in score.evidence().items() if name != "driver_signs"}
        text = rules.texts["unclear"].format(names=names) if of_bounds else otherwise
        return Driver(evidence=shown, remedy=Remedy(text=pushed or text))
    best = ranked[0]
    return Driver(
        regime=best.regime,
        evidence={"attribution": "measured", **known, **best.evidence()},
        remedy=_remedy(best, moves, declared, rules, pushed or otherwise),
    )


def _remedy(score: Score, moves: Sequence[Move], declared: Declared, rules: Rules, otherwise: str) -> Remedy:
    """The move of this regime that the evidence supports; without one, what to do instead."""
    texts = rules.texts
    for move in moves:
        target = declared.within(move.bound, move.target)
        if move.regime != score.regime or not _opens(declared, move.bound, move.direction, target):
            continue
        if move.entropy and "entropy effect" not in score.signs:
            continue
        if move.side is None or score.binds.get(move.side, False):
            text = texts[move.text or f"{move.bound.replace('.', '_')}_{move.direction}"]
            share = f"{100 * score.shares.get(move.side or '', 0.0):.0f}"
            return Remedy(bound=move.bound, direction=move.direction, target=target, text=text.format(share=share))
    bound, published = PUBLISHED[score.regime]
    sign = bound[:3]
    if declared.fixed(sign):
        return Remedy(text=texts["fixed"].format(side="A>0" if sign == "pos" else "A<0", otherwise=otherwise))
    value = declared.bounds.get(bound)
    target = declared.within(bound, published)
    if not score.gap or value is None or value == target:
        return Remedy(text=otherwise)
    direction: Direction = "lower" if value > target else "raise"
    text = texts["published"].format(
        verb=direction.capitalize(), bound=in_words(bound), target=f"{target:g}", share=f"{100 * abs(score.gap):.2g}"
    )
    return Remedy(bound=bound, direction=direction, target=target, text=text)


def in_words(bound: str) -> str:
    """As a person reads it: neg.w_min -> "w_min of A<0"."""
    sign, _, name = bound.partition(".")
    return f"{name} of {'A>0' if sign == 'pos' else 'A<0'}"


def _opens(declared: Declared, bound: str, direction: Direction, target: float) -> bool:
    """Whether the bound can move and is not at its target yet, as far as is known."""
    value = declared.bounds.get(bound)
    if declared.fixed(bound[:3]):
        return False
    return value is None or (value > target if direction == "lower" else value < target)


def _nothing_logged(history: BucketHistory, declared: Declared, texts: Mapping[str, str], paper: str | None) -> str:
    """What to log, in the words of the run's framework; and what to look at until then."""
    if history.seen:
        return texts["no_buckets_now"]
    framework = (declared.framework or "").lower().replace("_", "-")
    known = ("regimescope", "trl", "verl", "openrlhf", "prime-rl", "slime")
    name = next((name for name in known if framework.startswith(name)), "other")
    expected = texts[f"check_{paper}"] if paper is not None and f"check_{paper}" in texts else texts["check_any"]
    return texts["no_evidence"].format(log=texts[f"log_{name.replace('-', '_')}"], check=expected)


def _diverges(rows: Sequence[tuple[int, Row]], rules: Rules) -> str | None:
    """No bound is to blame, yet the updates push ever harder: a remedy that says by how much."""
    factors = pushed_by(rows)
    if not factors or min(factors.values()) < rules.core["driver_push"]:
        return None
    return rules.texts["diverges"].format(kl=f"{factors['kl_step']:.1f}", norm=f"{factors['grad_norm']:.1f}")
