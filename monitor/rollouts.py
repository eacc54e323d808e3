"""Rollouts that a run keeps: one response as a row, how many are kept, and the rule that chooses them.

    recorder = Recorder("runs/mine", rollouts=RolloutOptions(every=10))
    if recorder.wants_rollouts(step):
        recorder.rollouts(step, [Rollout(sample_id=0, length=3, reward=1.0, token_ids=(5, 6, 1))])

Of a sampled step the worst and the best rows are kept and, of the others, a part that chance decides, the same in every
repetition. `rollout_files.py` writes them. Standard library only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from regimescope.monitor.errors import RecorderError

Pick = Literal["worst", "best", "random"]
"Why a row was kept."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One response. What is not known stays None. Arrays have one value per token: lists, numpy arrays or host tensors,
    which must not change afterwards; non-finite values are stored as they are."""

    sample_id: int
    "Its own number among the responses of its step and rank, from 0 on."
    length: int
    "Tokens, the end token included."
    group_id: int | None = None
    "Responses with one number answer one prompt."
    env: str | None = None
    "Task, data source: value of the slice `env`."
    prompt: str | None = None
    response: str | None = None
    reward: float | None = None
    "None or NaN: no verdict."
    advantage: float | None = None
    correct: bool | None = None
    "The verifier's verdict; may disagree with the advantage's sign."
    finish_reason: Literal["eos", "length", "aborted", "infra"] | None = None
    "Ended by itself, cut, given up, or failed outside the policy (sandbox, verifier)."
    repetition: float | None = None
    "Share of repeated 4-grams, [0, 1)."
    update: int | None = None
    "Gradient update of its step at which logp_new, weight and bucket were taken."
    revision: int | None = None
    "Of the bounds, when it was generated."
    weight_version: int | None = None
    "Of the weights that generated it."
    lag: int | None = None
    "Weight versions between generation and training."
    token_ids: Sequence[int] | None = None
    "[length]"
    logp_old: Sequence[float] | None = None
    "[length], nats, of the weights that generated it."
    logp_new: Sequence[float] | None = None
    "[length], nats, at `update`."
    entropy: Sequence[float] | None = None
    "[length], nats, of the distributions that the tokens were drawn from."
    weight: Sequence[float] | None = None
    "[length], what the weight rule made of the ratio."
    bucket: Sequence[int] | None = None
    "[length], position in BUCKETS."
    tokens: Sequence[str] | None = None
    "[length], text of each token, so that a page can show it without the tokenizer."


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOptions:
    """How much is kept. Raises RecorderError for what makes no sense."""

    every: int = 10
    "Steps from one sampled step to the next: 0, every, 2 every, ..."
    limit: int = 16
    "Rows per sampled step and rank."
    texts: bool = True
    "False leaves prompt, response and tokens out, and token_ids too: with the tokenizer they are the text."
    max_bytes: int = 4 << 30
    """Of the run folder, launches before a resume included; each rank has an equal part. Then one `rollouts_full` event
    says so, and this launch keeps no more."""

    def __post_init__(self) -> None:
        for name in ("every", "limit", "max_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise RecorderError(f"rollouts: {name}={value!r}: want a whole number, at least 1")


def choose(rollouts: Iterable[Rollout], limit: int, *, step: int = 0, rank: int = 0) -> list[tuple[Pick, Rollout]]:
    """At most `limit` of the rows, each with why it was kept: the worst, the best, others by chance.

    A quarter each (at least one) are the worst and the best by reward. Among equal rewards, the most suspicious are the
    worst: more repetition (in steps of a tenth), then not ended by itself, then shorter. Rows without a reward are kept
    by chance alone, unless no row has one. The others are drawn uniformly, by a hash of step, rank and sample_id, so
    that neither their content nor their order matters. A choice of a choice with the same limit is that choice. Raises
    ValueError where two rows have one sample_id.
    """
    rows = list(rollouts)
    if len({row.sample_id for row in rows}) < len(rows):
        raise ValueError("two rows have one sample_id: number the responses of a step and rank")
    count = min(limit, len(rows))
    known = [row for row in rows if not _unknown(row.reward)]
    ranked = sorted(known or rows, key=_from_the_worst)
    quarter = max(1, count // 4)
    worst = ranked[: min(quarter, (len(ranked) + 1) // 2)]  # where few have a reward, half of them are the best
    rest = ranked[len(worst) :]
    best = rest[::-1][: min(quarter, count - len(worst))]
    kept = {row.sample_id for row in (*worst, *best)}
    others = sorted(
        (row for row in rows if row.sample_id not in kept), key=lambda row: _draw(step, rank, row.sample_id)
    )
    drawn = others[: count - len(worst) - len(best)]
    return [("worst", row) for row in worst] + [("best", row) for row in best] + [("random", row) for row in drawn]


def _unknown(reward: float | None) -> bool:
    return reward is None or math.isnan(reward)


def _from_the_worst(row: Rollout) -> tuple[float, int, bool, int, int]:
    reward = 0.0 if row.reward is None or math.isnan(row.reward) else row.reward
    return reward, -_tenths(row.repetition), row.finish_reason in ("eos", None), row.length, row.sample_id


def _tenths(repetition: float | None) -> int:
    """0 where it is not known; a number that is no share is as suspicious as can be."""
    if repetition is None:
        return 0
    return int(10 * repetition) if 0 <= repetition <= 1 else 11


def _draw(step: int, rank: int, sample_id: int) -> bytes:
    text = f"{operator.index(step)}/{operator.index(rank)}/{operator.index(sample_id)}"
    return blake2b(text.encode(), digest_size=8).digest()
