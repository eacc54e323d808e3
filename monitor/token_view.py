"""One rollout token by token, as the token viewer shows it: text, ratio, weight x advantage, which side clipped it,
what it repeats.

    view = token_view(row, rollout_tokens(folder, row), rule=run.weight_rule, bounds=bounds_of(buckets, row.update))

"Clipped" is that of the buckets: the recorded weight differs from the rule's base. Nothing is guessed: what was not
recorded is None, and a text per token is matched to the response only where one character per token is certain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regimescope.monitor.bounds import Bounds, SignRule, WeightRule
from regimescope.monitor.buckets import BucketRow
from regimescope.monitor.repeats import Loop, loop_of, repeated_tokens
from regimescope.monitor.rollout_reader import Floats, RolloutTokens
from regimescope.monitor.rollout_rows import RolloutRow
from regimescope.monitor.token_stats import LOG_RATIO_CLAMP

Clip = Literal["", "high", "low"]
NEAR = 1e-4
"Relative difference of two weights that float32 explains."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """Parallel lists, one item per token; None = not recorded."""

    count: int
    texts: Sequence[str | None] | None
    matched: bool
    "The texts were not recorded: one character of the response per token."
    token_ids: Sequence[int | None] | None
    logp_old: Floats | None
    logp_new: Floats | None
    log_ratio: Floats | None
    entropy: Floats | None
    weight: Floats | None
    bucket: Sequence[int | None] | None
    advantage: float | None
    "Of the response, so of each token."
    clip: Sequence[Clip] | None
    "Side that changed the token's weight."
    repeated: Sequence[bool] | None
    "Part of a 4-gram that came before."
    loop: Loop | None
    bounds: Bounds | None
    "In force at the update; None = not known."

    @property
    def clipped(self) -> tuple[int, int]:
        """Tokens clipped high, and low."""
        clip = self.clip or ()
        return sum(side == "high" for side in clip), sum(side == "low" for side in clip)


def token_view(row: RolloutRow, tokens: RolloutTokens, *, rule: WeightRule | None, bounds: Bounds | None) -> TokenView:
    """Everything the viewer shows of a response."""
    ratio = log_ratio(tokens)
    ids = tokens.token_ids
    texts, matched = (tokens.tokens, False) if tokens.tokens is not None else (matched_texts(row, tokens), True)
    return TokenView(
        count=row.length,
        texts=texts,
        matched=matched and texts is not None,
        token_ids=ids,
        logp_old=tokens.logp_old,
        logp_new=tokens.logp_new,
        log_ratio=ratio,
        entropy=tokens.entropy,
        weight=tokens.weight,
        bucket=tokens.bucket,
        advantage=row.advantage,
        clip=clip_sides(ratio, tokens.weight, row.advantage, rule),
        repeated=None if ids is None else repeated_tokens(ids),
        loop=None if ids is None else loop_of(ids, ended=row.finish_reason == "eos"),
        bounds=bounds,
    )


def bounds_of(buckets: Sequence[BucketRow], update: int | None) -> Bounds | None:
    """The bounds of one update from the buckets of its step, or those that all its updates shared; None: not told."""
    mine = [b for b in buckets if update is None or b.update == update]
    sides = []
    for names in (("R1", "R2", "pos_eq1"), ("R3", "R4", "neg_eq1")):
        pairs = {(b.w_min, b.w_max) for b in mine if b.bucket in names}
        if len(pairs) != 1 or None in (pair := pairs.pop()):
            return None
        sides.append(list(pair))
    return Bounds.from_wire({"pos": sides[0], "neg": sides[1]})


def log_ratio(tokens: RolloutTokens) -> Floats | None:
    """log r of each token, nats."""
    if tokens.logp_new is None or tokens.logp_old is None:
        return None
    pairs = zip(tokens.logp_new, tokens.logp_old, strict=True)
    return tuple(None if new is None or old is None else new - old for new, old in pairs)


def clip_sides(
    ratio: Floats | None, weight: Floats | None, advantage: float | None, rule: WeightRule | None
) -> list[Clip] | None:
    """Which side of the bounds changed each token's weight; None: weights or ratios were not recorded, or the rule is
    not known.
    """
    if ratio is None or weight is None or rule is None or advantage is None:
        return None
    side = rule.neg if advantage < 0 else rule.pos  # A = 0 takes the rule of A > 0, as in training
    if side.base == "s":
        known = [x for x in ratio if x is not None]
        ratio = (sum(known) / max(1, len(known)),) * len(ratio)
    return [_side(x, w, side) for x, w in zip(ratio, weight, strict=True)]


def _side(log_r: float | None, weight: float | None, rule: SignRule) -> Clip:
    if log_r is None or weight is None or math.isnan(log_r) or math.isnan(weight):
        return ""
    r = math.exp(max(-LOG_RATIO_CLAMP, min(LOG_RATIO_CLAMP, log_r)))
    base = 1.0 if rule.base == "1" else 1 / r if rule.base == "1/r" else r
    if math.isclose(weight, base, rel_tol=NEAR):
        return ""
    if weight == 0 and rule.drop_below is not None and r < rule.drop_below * (1 + NEAR):
        return "low"
    return "high" if weight < base else "low"


def matched_texts(row: RolloutRow, tokens: RolloutTokens) -> tuple[str | None, ...] | None:
    """A character of the response for each token, where there must be exactly one: as many as tokens before the end
    token, and the same one for the same id everywhere.
    """
    ids, response = tokens.token_ids, tokens.response
    if ids is None or response is None or row.finish_reason not in ("eos", "length"):
        return None
    ended = row.finish_reason == "eos"
    if len(response) != len(ids) - ended:
        return None
    body = list(zip(ids, response, strict=False))
    if len(set(body)) != len({i for i, _ in body}):
        return None
    return (*response, *([None] if ended else []))
