"""The stale queue and the order of the updates."""

import hypothesis.strategies as st
import torch
from hypothesis import given

from regimescope.trainer.buffer import Experience, StaleQueue, update_batches


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
