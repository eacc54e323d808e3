"""A weight rule in words: what it makes of r, and what bounds each regime. Pure.

>>> from regimescope.monitor.bounds import SignRule
>>> bound_text(SignRule(cap_low=0.8, cap_high=11.0), above=True)
'w ≤ 11'
>>> bound_text(SignRule(drop_above=1.28), above=True)
'w = 0 above r = 1.28'
"""

from __future__ import annotations

import math

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.monitor.ui.texts import weight

INERT = "Clip signals inert: the ratio divides by newer weights than those that generated (ratio source proximal)."
NOISY = "Buckets noisy: the ratio divides by the inference engine's own log-probabilities (ratio source infer)."
SEQUENCES = (
    "This objective weighs whole sequences: every token carries the ratio s of its sequence, so shares are shares of "
    "sequences, each counted with its tokens."
)
MISMATCH = (
    "At lag 0 every ratio of update 0 is 1, yet {share} of its tokens are clipped: trainer and inference engine "
    "disagree (engine mismatch)."
)
DRIFT = "Rollouts are older than the weights, so clipping at update 0 is the policy's drift since generation."


def weight_text(rule: SignRule) -> str:
    """What the weight is before its bounds: "w = r"."""
    return f"w = {rule.base}"


def bound_text(rule: SignRule, *, above: bool) -> str:
    """What the rule does to tokens on one side of r = 1; several limits are joined by "; "."""
    flipped = rule.base == "1/r"
    upper, lower = (not above, above) if flipped else (above, not above)
    parts = []
    if rule.base != "1" and upper and rule.cap_high is not None and math.isfinite(rule.cap_high):
        parts.append(f"w ≤ {weight(rule.cap_high)}")
    if rule.base != "1" and lower and rule.cap_low is not None and rule.cap_low > 0:
        parts.append(f"w ≥ {weight(rule.cap_low)}")
    name = "s" if rule.base == "s" else "r"
    if above and rule.drop_above is not None and math.isfinite(rule.drop_above):
        parts.append(f"w = 0 above {name} = {weight(rule.drop_above)}")
    if not above and rule.drop_below:
        parts.append(f"w = 0 below {name} = {weight(rule.drop_below)}")
    return "; ".join(parts) or "no bound"


def clip_column(rule: WeightRule | None, regime: str) -> str:
    """Column of the buckets that counts what the regime's own bound clips: with base 1/r the sides are swapped."""
    above = regime in ("R1", "R3")
    side = None if rule is None else (rule.pos if regime in ("R1", "R2") else rule.neg)
    if side is not None and side.base == "1/r":
        capped = side.cap_low if above else side.cap_high
        above = above and side.drop_above is not None if capped is None else not above
    return "clip_high_frac" if above else "clip_low_frac"


def notes(rule: WeightRule | None, ratio_source: str | None) -> list[str]:
    """What limits the meaning of everything on the page."""
    found = []
    if ratio_source == "proximal":
        found.append(INERT)
    if ratio_source == "infer":
        found.append(NOISY)
    if rule is not None and "s" in (rule.pos.base, rule.neg.base):
        found.append(SEQUENCES)
    return found


def first_update_note(share: float | None, lag: float | None, ratio_source: str | None) -> str:
    """What clipping at update 0 means; empty where there is none, or nothing can be said."""
    if not share or lag is None or ratio_source != "behaviour":
        return ""
    text = f"{100 * share:.1f} %" if share >= 5e-4 else "a few"
    return MISMATCH.format(share=text) if lag == 0 else DRIFT
