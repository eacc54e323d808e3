"""What other bounds would have done to the tokens of the last steps, from the stored histograms over log r.

    p = predict(con, run, now=bounds, then=bounds.with_values({"neg.w_min": 0.0}))
    print(p.obstacle or sentence(p))

The same batches, one step ahead: no forecast of the policy. Exact where a bound is an edge of the histogram (all that
the pages offer are), else with the tokens of the split bin as its error. Both weights are replayed, so bounds that
moved within the steps do not matter. `read_window` and `replay` are its two halves, for many bounds over one window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from regimescope.monitor.bounds import Bounds, WeightRule
from regimescope.monitor.query import BucketSums, Connection, RatioSteps, RunRow, bucket_sums, ratio_steps
from regimescope.monitor.reweigh import RegimeSums, equal_sums, step_sums

LAST_STEPS = 20
"Steps that a prediction looks at."

_REGIMES = {1: ("R1", "R2"), -1: ("R3", "R4")}
"By sign: r > 1, r < 1."
_SIDES = {1: "pos", -1: "neg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one regime, over all steps of the window."""

    regime: str
    tokens: int
    "Of that sign and side of 1."
    clipped_now: float
    clipped_then: float
    "Share of them whose weight is not the base: capped, raised or dropped, 0..1."
    clipped_error: float
    "+- of clipped_then: the tokens of the bins that a bound splits, 0 = exact."
    low: float
    median: float
    high: float
    "Of clipped_then over the single steps."
    grad_mass_now: float | None
    grad_mass_then: float | None
    "Share of the whole gradient mass, r = 1 included; None: base 1/r, or the sums are missing or not finite."
    changed: int
    "Tokens whose weight would change; an estimate where a bin is split, and then at least 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What `then` in place of `now` would have done."""

    obstacle: str
    "Why nothing can be said; empty = something can."
    steps: int = 0
    first: int = 0
    last: int = 0
    "Steps looked at, the first and the last of them."
    tokens: int = 0
    "All valid tokens of these steps."
    changed: int = 0
    "Of them, those whose weight would change; with r = 1 too."
    effects: tuple[Effect, ...] = ()
    "R1, R2, R3, R4; empty with an obstacle."
    exact: bool = True
    "No bound splits a bin that holds a token."


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stored numbers that predictions over the same steps share."""

    histograms: RatioSteps
    sums: Sequence[BucketSums]
    "Of the same steps."


def predict(
    con: Connection, run: RunRow, *, now: Bounds, then: Bounds, steps: int = LAST_STEPS, slice_id: int = 0,
    until: int | None = None,
) -> Prediction:  # fmt: skip
    """Over the last `steps` steps with a histogram, up to `until` (None = the newest). Raises BoundsError for bounds
    that the run's rule cannot take.
    """
    stop = obstacle(run)
    window = None if stop else read_window(con, run.run_key, steps=steps, slice_id=slice_id, until=until)
    if stop or window is None or run.weight_rule is None:
        return Prediction(obstacle=stop or NO_HISTOGRAM)
    return replay(window, run.weight_rule, now=now, then=then)


NO_HISTOGRAM = (
    "No histogram over log r is stored for this. Call Recorder.ratio_hist(step, stats) in every step; "
    "`regimescope train` does so unless record.statistics is off."
)


def obstacle(run: RunRow) -> str:
    """Why no prediction is possible whatever the numbers are; empty = it is."""
    rule = run.weight_rule
    if rule is None:
        return "The run does not say how it makes weights. Pass rule= to the Recorder."
    bases = (rule.pos.base, rule.neg.base)
    if "s" in bases:
        return (
            "The weight rule acts on the ratio of whole sequences. The histograms count tokens, too coarsely for the "
            "bounds of sequences, which lie within 0.001 of 1."
        )
    if bases == ("1", "1"):
        return "The weight is constant: there is no bound to move."
    if run.ratio_source == "proximal":
        return "The ratio divides by a newer policy than the one that generated (proximal): clip signals are inert."
    return ""


def read_window(
    con: Connection, run_key: int, *, steps: int = LAST_STEPS, slice_id: int = 0, until: int | None = None
) -> Window | None:
    """The last `steps` steps up to `until` that have a histogram; None where there is none."""
    found = ratio_steps(con, run_key, last=steps, slice_id=slice_id, until=until)
    if found is None:
        return None
    used = {one.step for one in found.steps}
    sums = bucket_sums(con, run_key, steps=(min(used), max(used)), slice_id=slice_id)
    return Window(histograms=found, sums=[row for row in sums if row.step in used])


def replay(window: Window, rule: WeightRule, *, now: Bounds, then: Bounds) -> Prediction:
    """`rule` under both bounds over the tokens of the window. A sign with base 1 stays as it is."""
    if rule.pos.base == "1":
        then = replace(then, pos=now.pos)
    if rule.neg.base == "1":
        then = replace(then, neg=now.neg)
    pair = rule.with_bounds(now), rule.with_bounds(then)
    steps = sorted({one.step for one in window.histograms.steps})
    total = {name: RegimeSums() for names in _REGIMES.values() for name in names}
    shares: dict[str, list[float]] = {name: [] for name in total}
    for one in window.histograms.steps:
        sides = (getattr(pair[0], _SIDES[one.sign]), getattr(pair[1], _SIDES[one.sign]))
        for name, part in zip(_REGIMES[one.sign], step_sums(window.histograms.edges, one, *sides), strict=True):
            total[name].add(part)
            if part.tokens:
                shares[name].append(part.then / part.tokens)
    equal = equal_sums(window.sums, rule, pair, now)
    seen = sum(row.tokens for row in window.sums) or round(sum(part.tokens for part in total.values()))
    wholes = tuple(
        sum(mass) for mass in zip(*((p.mass_now, p.mass_then) for p in (*total.values(), equal)), strict=True)
    )
    effects = tuple(_effect(name, part, shares[name], wholes) for name, part in total.items())
    return Prediction(
        obstacle="", steps=len(steps), first=steps[0], last=steps[-1], tokens=seen, effects=effects,
        changed=sum(effect.changed for effect in effects) + round(equal.changed),
        exact=not any(part.split for part in total.values()),
    )  # fmt: skip


def sentence(p: Prediction) -> str:
    """In words: the obstacle, "0 of 1,240,332 tokens would change", or a line per regime that a bound moves."""
    if p.obstacle:
        return p.obstacle
    head = f"{p.changed:,} of {p.tokens:,} tokens would change"
    lines = [_line(effect) for effect in p.effects if effect.changed]
    return "\n".join([head, *lines])


def _line(effect: Effect) -> str:
    error = f" ± {_percent(effect.clipped_error)}" if effect.clipped_error else ""
    line = f"{effect.regime}: clipped {_percent(effect.clipped_now)} → {_percent(effect.clipped_then)}{error}"
    if effect.grad_mass_now is None or effect.grad_mass_then is None:
        return line
    return f"{line}, gradient mass {_percent(effect.grad_mass_now)} → {_percent(effect.grad_mass_then)}"


def _percent(share: float) -> str:
    if 0 < share < 5e-4 or 1 - 5e-4 < share < 1:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _effect(name: str, part: RegimeSums, shares: Sequence[float], wholes: Sequence[float]) -> Effect:
    count = part.tokens or 1.0
    masses = [
        mass / whole if whole else math.nan for mass, whole in zip((part.mass_now, part.mass_then), wholes, strict=True)
    ]
    known = all(map(math.isfinite, masses))
    return Effect(
        regime=name, tokens=round(part.tokens), clipped_now=_share(part.now / count),
        clipped_then=_share(part.then / count), clipped_error=_share(part.error / count), low=min(shares, default=0.0),
        median=median(shares) if shares else 0.0, high=max(shares, default=0.0),
        grad_mass_now=masses[0] if known else None, grad_mass_then=masses[1] if known else None,
        changed=math.ceil(part.changed - 1e-6),
    )  # fmt: skip


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
