"""Rollouts that wait to be trained on: the usable responses of a step with their frozen log-probabilities
(`experience_of`), and the queue that makes them stale.

`old` is evaluated by the trainer with the weights that generated the response and stays as it is, however many weight
versions later the response is trained on; the lag is the difference of the versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from regimescope.trainer.advantages import GroupAdvantages
from regimescope.trainer.responses import Response
from regimescope.trainer.sampling import Evaluated, Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """The usable responses of one step, n of them; n = 0 when no group gives an advantage."""

    prompts: Sequence[Sequence[int]]
    "[n] token ids."
    responses: Sequence[Sequence[int]]
    "[n] token ids, end token included."
    logp_old: Sequence[Tensor]
    "[n] of [length of the response], float32, nats."
    logp_infer: Sequence[Tensor]
    "[n] of [length], what the engine reported."
    logp_ref: Sequence[Tensor] | None
    "[n] of [length], of the reference policy; None without a KL penalty."
    advantages: Tensor
    "[n], float32."
    groups: Tensor
    "[n] int64: responses with one number answer one prompt."
    keys: Tensor
    "[n] int64: a number of each response, its own among those of its step."
    envs: Sequence[str]
    "[n] value of the slice `env`."
    weight_version: int
    "Version of the weights that generated the responses."

    def __len__(self) -> int:
        return len(self.responses)

    def to_state(self) -> dict[str, Any]:
        """Plain lists and tensors, for a checkpoint."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**state, "prompts": [*map(list, self.prompts)], "responses": [*map(list, self.responses)]}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Experience:
        return cls(**state)


def experience_of(
    judged: Judged,
    groups: GroupAdvantages,
    old: Evaluated,
    ref: Evaluated | None,
    chosen: Sequence[int],
) -> Experience:
    """What is learnt from: the usable responses of the chosen groups."""
    usable = torch.zeros_like(groups.usable)
    usable[list(chosen)] = groups.usable[list(chosen)]
    rows = usable.flatten().nonzero()[:, 0]
    picked = rows.tolist()
    return Experience(
        prompts=[judged.prompts[i] for i in picked],
        responses=[judged.responses[i].token_ids for i in picked],
        logp_old=[old.logps[i] for i in picked],
        logp_infer=[infer_of(judged.responses[i]) for i in picked],
        logp_ref=None if ref is None else [ref.logps[i] for i in picked],
        advantages=groups.advantages.flatten()[rows],
        groups=rows // judged.group,
        keys=rows,
        envs=[judged.responses[i].env for i in picked],
        weight_version=judged.weight_version,
    )


def infer_of(response: Response) -> Tensor:
    """What the engine reported for each token, [length] float32."""
    assert response.logps is not None  # sample() keeps them
    return torch.from_numpy(response.logps)


class StaleQueue:
    """First in, first out, `stale` steps later: `push` gives back what is trained on now, or None while the queue
    fills."""

    def __init__(self, stale: int, waiting: Sequence[Experience] = ()) -> None:
        self.stale = stale
        self._waiting = deque(waiting)

    def push(self, experience: Experience) -> Experience | None:
        self._waiting.append(experience)
        return self._waiting.popleft() if len(self._waiting) > self.stale else None

    def __iter__(self) -> Iterator[Experience]:
        return iter(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)


def update_batches(count: int, size: int, passes: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices of the responses of each update: every response once per pass, in a fresh order, the last batch of a pass
    possibly smaller."""
    for _ in range(passes):
        yield from torch.split(torch.randperm(count, generator=generator), size)
