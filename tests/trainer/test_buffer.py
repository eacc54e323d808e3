"""The stale queue and the order of the updates."""

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

from regimescope.trainer.advantages import group_advantages
from regimescope.trainer.buffer import Experience, StaleQueue, experience_of, update_batches
from regimescope.trainer.responses import Response
from regimescope.trainer.sampling import Evaluated, Judged


def experience(version: int) -> Experience:
    return Experience(
        prompts=[[1, 2]],
        responses=[(3, 4, version)],
        logp_old=[torch.full((3,), -float(version))],
        logp_infer=[torch.full((3,), -float(version))],
        logp_ref=None,
        advantages=torch.ones(1),
        groups=torch.zeros(1, dtype=torch.long),
        keys=torch.tensor([version]),
        envs=["chain"],
        weight_version=version,
    )


def test_what_is_learnt_from_are_the_usable_responses_of_the_chosen_groups() -> None:
    """Three prompts of two: the first has equal rewards, the third is not chosen."""
    responses = [
        Response(
            token_ids=(5, i), ended=True, outcome="correct", logps=np.array([-1, -i], np.float32), env=f"e{i // 2}"
        )
        for i in range(6)
    ]
    rewards = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    judged = Judged(prompts=[[7, i] for i in range(6)], responses=responses, rewards=rewards, weight_version=3)
    old = Evaluated(logps=[torch.full((2,), -10.0 - i) for i in range(6)], entropy=torch.zeros(6))
    ref = Evaluated(logps=[torch.full((2,), -20.0 - i) for i in range(6)], entropy=torch.zeros(6))
    found = experience_of(judged, group_advantages(rewards, std=False), old, ref, [0, 1])
    assert found.prompts == [[7, 2], [7, 3]] and [r[1] for r in found.responses] == [2, 3]
    assert found.advantages.tolist() == [1.0, -1.0] and found.envs == ["e1", "e1"] and found.weight_version == 3
    assert found.groups.tolist() == [1, 1] and found.keys.tolist() == [2, 3]
    assert found.logp_ref is not None
    assert [x[0].item() for x in (*found.logp_old, *found.logp_ref)] == [-12, -13, -22, -23]
    assert [x[1].item() for x in found.logp_infer] == [-2, -3]


@given(st.integers(0, 5), st.integers(1, 12))
def test_what_comes_out_is_exactly_that_old(stale: int, count: int) -> None:
    queue = StaleQueue(stale)
    out = [queue.push(experience(i)) for i in range(count)]
    assert [None if e is None else e.weight_version for e in out] == [
        i - stale if i >= stale else None for i in range(count)
    ]
    assert len(queue) == min(stale, count)


def test_a_queue_goes_through_a_checkpoint() -> None:
    queue = StaleQueue(2)
    for i in range(2):
        queue.push(experience(i))
    again = StaleQueue(2, [Experience.from_state(e.to_state()) for e in queue])
    first = again.push(experience(2))
    assert first is not None and first.weight_version == 0
    assert first.responses[0] == [3, 4, 0] and torch.equal(first.logp_old[0], experience(0).logp_old[0])


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 3), st.integers(0, 9))
def test_every_response_once_per_pass(count: int, size: int, passes: int, seed: int) -> None:
    batches = list(update_batches(count, size, passes, torch.Generator().manual_seed(seed)))
    rows = torch.cat(batches).tolist()
    for one in range(passes):
        assert sorted(rows[one * count : (one + 1) * count]) == list(range(count))
    assert len(batches) == passes * -(-count // size)
    again = update_batches(count, size, passes, torch.Generator().manual_seed(seed))
    assert torch.cat(list(again)).tolist() == rows
