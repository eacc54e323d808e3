"""The responses of a step as rows for the Recorder, with what the gradient updates made of their tokens.

    tap = record.push(step, Sampled(judged=..., ...), experience)      # None: nobody keeps rows of this step
    updater.train(..., tap=tap)
    recorder.rollouts(step, tap.rows(lag))

The rows of step s are the responses that were trained on in s, and those of their groups and of their batch that were
not (equal rewards, no verdict): with stale rollouts the whole batch that was generated `stale` steps before s, as its
`lag` says. So a row belongs to the buckets of its step. While the queue fills there are none, and none for the batches
that waited in a checkpoint, which does not keep texts and verdicts.

`logp_new`, `weight`, `bucket` and `update` are of the last update of the step that a response took part in, from the
update's own forward: a tap keeps references and copies the rows that are kept, afterwards. It changes no number of the
training. With several ranks a row is recorded by the rank that saw this forward, one that was not trained on by the
rank that generated it; `entropy` is known where that is the same rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regimescope.monitor.record import Recorder
from regimescope.monitor.rollouts import Rollout, choose
from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.buffer import Experience
from regimescope.trainer.loss.statistics import bucket_index
from regimescope.trainer.loss.weights import TokenTerms
from regimescope.trainer.policy import Policy
from regimescope.trainer.repetition import seq_rep
from regimescope.trainer.responses import Response
from regimescope.trainer.sampling import Evaluated, Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One batch as it was generated."""

    judged: Judged
    "All responses, of every rank."
    groups: GroupAdvantages
    "Theirs."
    old: Evaluated
    "Theirs; `entropies` of it are not read."
    entropies: Sequence[Tensor]
    "Per token, of the responses of `mine` in their order."
    mine: Sequence[int]
    "Groups that this rank generated."
    revision: int
    "Of the bounds in force."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Where the tokens of a response stand in the terms of an update."""

    update: int
    terms: TokenTerms
    start: int
    end: int


class Tap:
    """Follows the updates of one step. `update`, then `see` for each micro-batch of it; at the end `rows`."""

    def __init__(self, policy: Policy, sampled: Sampled, experience: Experience, *, limit: int, step: int, rank: int):
        self._policy, self._sampled, self._experience = policy, sampled, experience
        self._limit, self._step, self._rank = limit, step, rank
        self._seen: dict[int, _Seen | None] = {}  # by place in the experience; None = last seen by another rank
        self._update = 0

    def update(self, number: int, rows: Sequence[int]) -> None:
        """Update `number` takes these responses of the experience, whichever rank has which."""
        self._update = number
        self._seen.update(dict.fromkeys(rows))

    def see(self, rows: Sequence[int], terms: TokenTerms) -> None:
        """The forward of some of them: `terms` has their tokens, one response after the other."""
        end = 0
        for row in rows:
            start, end = end, end + len(self._experience.responses[row])
            self._seen[row] = _Seen(update=self._update, terms=terms, start=start, end=end)

    def rows(self, lag: int | None) -> Iterator[Rollout]:
        """The rows that are kept. `lag`: weight versions between generation and training, of those trained on."""
        judged = self._sampled.judged
        keys = self._experience.keys.tolist()
        trained = {keys[place]: seen for place, seen in self._seen.items()}
        own = set(judged.rows_of(self._sampled.mine))
        places = [i for i in range(len(judged.responses)) if (trained[i] is not None if i in trained else i in own)]
        repetition = seq_rep([_body(judged.responses[i]) for i in places], 4)
        rewards, advantages = (x.flatten().tolist() for x in (judged.rewards, self._sampled.groups.advantages))
        plain = [
            self._plain(i, reward=rewards[i], advantage=advantages[i], repetition=float(share))
            for i, share in zip(places, repetition, strict=True)
        ]
        entropies = dict(zip(judged.rows_of(self._sampled.mine), self._sampled.entropies, strict=True))
        for _, row in choose(plain, self._limit, step=self._step, rank=self._rank):
            yield self._whole(row, trained.get(row.sample_id), entropies, lag)

    def _plain(self, place: int, *, reward: float, advantage: float, repetition: float) -> Rollout:
        """Without texts and arrays: what the choice looks at."""
        sampled, response = self._sampled, self._sampled.judged.responses[place]
        judged = response.outcome != "infra_failed"
        return Rollout(
            sample_id=place,
            group_id=place // sampled.judged.group,
            env=response.env or None,
            reward=reward if judged else None,
            advantage=advantage if judged else None,
            correct=response.outcome == "correct" if judged else None,
            length=len(response.token_ids),
            finish_reason="infra" if not judged else "eos" if response.ended else "length",
            repetition=repetition,
            revision=sampled.revision,
            weight_version=sampled.judged.weight_version,
        )

    def _whole(self, row: Rollout, seen: _Seen | None, entropies: Mapping[int, Tensor], lag: int | None) -> Rollout:
        judged, place = self._sampled.judged, row.sample_id
        entropy = entropies.get(place)
        known: dict[str, Any] = {
            "prompt": self._policy.decode(judged.prompts[place]),
            "response": judged.responses[place].text,
            "token_ids": judged.responses[place].token_ids,
            "tokens": self._policy.pieces(judged.responses[place].token_ids),
            "logp_old": _floats(self._sampled.old.logps[place]),
            "entropy": None if entropy is None else _floats(entropy),
        }
        if seen is not None:
            of, terms = slice(seen.start, seen.end), seen.terms
            known |= {
                "update": seen.update,
                "lag": lag,
                "logp_new": _floats(terms.logp[of]),
                "weight": _floats(terms.weight[of]),
                "bucket": bucket_index(terms.log_ratio[of], terms.advantage[of]).cpu().numpy(),
            }
        return replace(row, **known)


class RolloutRecord:
    """Batches on their way to training, beside the stale queue."""

    def __init__(self, policy: Policy, recorder: Recorder, *, limit: int, rank: int, stale: int, waiting: int) -> None:
        """`limit`: rows per step. `stale`: of the queue. `waiting`: batches in it at the start, from a checkpoint."""
        self._policy, self._recorder = policy, recorder
        self._limit, self._rank, self._stale = limit, rank, stale
        self._queue: deque[Sampled | None] = deque([None] * waiting)

    def push(self, step: int, sampled: Sampled, experience: Experience | None) -> Tap | None:
        """`sampled`: the batch of this step. `experience`: what is trained on in this step, of an earlier batch maybe.

        None where no rows of this step are kept, or its batch is not known.
        """
        due = step + max(self._stale, len(self._queue))
        wanted = self._recorder.wants_rollouts(due)  # no need to hold what nobody will ask for
        self._queue.append(sampled if wanted else None)
        batch = self._queue.popleft() if len(self._queue) > self._stale else None
        if batch is None or experience is None:
            return None
        return Tap(self._policy, batch, experience, limit=self._limit, step=step, rank=self._rank)


def _body(response: Response) -> Sequence[int]:
    return response.token_ids[: max(0, len(response.token_ids) - response.ended)]


def _floats(values: Tensor) -> NDArray[np.float32]:
    floats: NDArray[np.float32] = values.detach().float().cpu().numpy()
    return floats
