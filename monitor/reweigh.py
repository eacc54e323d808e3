"""A weight rule replayed over histograms of log r, beside another one: how many tokens each holds away from the base,
on how many they differ, and the gradient mass under each.

    high, low = step_sums(edges, step, rule_now, rule_then)     # RegimeSums of r > 1 and of r < 1
    at_one = equal_sums(rows, rule, (rule_now, rule_then), now) # of r = 1, from the buckets

A rule is a constant or the base on every piece between its caps and drops, so sums below these cuts are all it takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regimescope.monitor.bins import Cut, below
from regimescope.monitor.bounds import Bounds, SignRule, WeightRule
from regimescope.monitor.buckets import BucketSums
from regimescope.monitor.histograms import RatioStep
from regimescope.monitor.token_stats import LOG_RATIO_CLAMP

_LEAST = math.exp(-LOG_RATIO_CLAMP)
"No ratio is below it."


@dataclass(slots=True)
class RegimeSums:
    """Of the tokens of one regime; add up over the steps."""

    tokens: float = 0.0
    now: float = 0.0
    then: float = 0.0
    "Tokens whose weight is not the base, under the one rule and the other."
    changed: float = 0.0
    "Tokens to which the two give different weights."
    mass_now: float = 0.0
    mass_then: float = 0.0
    "Sum of w|A|; NaN where it is not known."
    error: float = 0.0
    "Tokens of the bins that a bound of `then`, or r = 1, splits: the most that `then` can be wrong by."
    split: float = 0.0
    "The same with the bounds of `now`."

    def add(self, other: RegimeSums) -> None:
        """In place."""
        for name in RegimeSums.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def held_at(rule: SignRule, ratio: float) -> float | None:
    """Weight at which the rule holds a token of this ratio (0 = dropped); None: its weight is the base."""
    if (rule.drop_above is not None and ratio > rule.drop_above) or (
        rule.drop_below is not None and ratio < rule.drop_below
    ):
        return 0.0
    base = {"1": 1.0, "1/r": 1 / ratio}.get(rule.base, ratio)
    if rule.cap_high is not None and base > rule.cap_high:
        return rule.cap_high
    return rule.cap_low if rule.cap_low is not None and base < rule.cap_low else None


def held_ranges(rule: SignRule) -> list[tuple[float, float]]:
    """Ratios at which the rule holds a token away from the base, as ranges; 0 and infinity are open ends.

    >>> held_ranges(SignRule(cap_low=0.8, cap_high=11.0))
    [(0.0, 0.8), (11.0, inf)]
    """
    found: list[tuple[float, float]] = []
    for low, high in pairwise([0.0, *sorted(_breaks(rule)), math.inf]):
        if held_at(rule, _inside(low, high)) is None:
            continue
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found


def _inside(low: float, high: float) -> float:
    if low == 0:
        return min(1.0, high / 2)
    return low * 2 if math.isinf(high) else math.sqrt(low * high)


def _breaks(rule: SignRule) -> set[float]:
    """Ratios at which `held_at` changes."""
    caps = [x for x in (rule.cap_low, rule.cap_high) if x is not None and rule.base != "1"]
    caps = [1 / x if x else math.inf for x in caps] if rule.base == "1/r" else caps
    drops = [x for x in (rule.drop_below, rule.drop_above) if x is not None]
    return {x for x in (*caps, *drops) if _LEAST <= x <= 1 / _LEAST}


def step_sums(edges: Sequence[float], one: RatioStep, now: SignRule, then: SignRule) -> tuple[RegimeSums, RegimeSums]:
    """(r > 1, r < 1) of one step and sign."""
    ratios = [0.0, *sorted(_breaks(now) | _breaks(then) | {1.0}), math.inf]
    cuts = [below(edges, one, ratio) for ratio in ratios]
    above_one, below_one = RegimeSums(), RegimeSums()
    for (low, high), (start, end) in zip(pairwise(ratios), pairwise(cuts), strict=True):
        middle = _inside(low, high)
        held, would = held_at(now, middle), held_at(then, middle)
        side, tokens = below_one if low < 1 else above_one, end.tokens - start.tokens
        side.tokens += tokens
        side.now += tokens * (held is not None)
        side.then += tokens * (would is not None)
        side.changed += tokens * (held != would)
        side.mass_now += _mass(now, held, start, end)
        side.mass_then += _mass(then, would, start, end)
    for side, first, last in ((above_one, 1.0, math.inf), (below_one, 0.0, 1.0)):
        own = {ratio: cut for ratio, cut in zip(ratios, cuts, strict=True) if first <= ratio <= last}
        side.error = _split(one, own, _breaks(then) | {1.0})
        side.split = _split(one, own, set(own))
    return above_one, below_one


def _split(one: RatioStep, cuts: Mapping[float, Cut], at: set[float]) -> float:
    """Tokens of the bins that these ratios split, each bin once."""
    return float(sum(one.counts[i] for i in {cut.bin for ratio, cut in cuts.items() if cut.split and ratio in at}))


def _mass(rule: SignRule, held: float | None, start: Cut, end: Cut) -> float:
    """Sum of w|A| between two cuts; NaN for the base 1/r, whose sums are not stored."""
    adv = end.abs_adv - start.abs_adv
    if held is not None:
        return held * adv if held else 0.0
    if rule.base == "1":
        return adv
    return end.abs_adv_ratio - start.abs_adv_ratio if rule.base == "r" else math.nan


def equal_sums(
    rows: Sequence[BucketSums], rule: WeightRule, pair: tuple[WeightRule, WeightRule], now: Bounds
) -> RegimeSums:
    """The tokens with r = 1. Their |A| is what their mass was over the weight that the bounds of their step gave."""
    found = RegimeSums()
    for row in rows:
        side = row.bucket.removesuffix("_eq1")
        if side == row.bucket:
            continue
        here = now
        if row.w_min is not None and row.w_max is not None:
            here = now.with_values({f"{side}.w_min": row.w_min, f"{side}.w_max": row.w_max})
        was, is_now, would = (_at_one(getattr(r, side)) for r in (rule.with_bounds(here), *pair))
        adv = row.abs_adv_weight_sum / was if was else (0.0 if row.tokens == 0 else math.nan)
        found.mass_now += is_now * adv
        found.mass_then += would * adv
        found.changed += row.tokens * (is_now != would)
    return found


def _at_one(rule: SignRule) -> float:
    held = held_at(rule, 1.0)
    return 1.0 if held is None else held
