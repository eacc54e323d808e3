"""Aggregations by their definitions, and the same loss however an update is split."""

from typing import Any, get_args

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from regimescope.trainer.errors import ConfigError
from regimescope.trainer.loss.aggregation import Aggregation, token_weights
from regimescope.trainer.loss.objective import Objective, policy_loss
from regimescope.trainer.loss.published import published

LENGTHS = torch.tensor([3, 1, 0, 4])
ADVANTAGES = torch.tensor([1.0, -1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", [1 / 8, 1 / 8, 0, 1 / 8]),
        ("sequence_mean", [1 / 9, 1 / 3, 0, 1 / 12]),  # three sequences have a token
        ("constant_length", [1 / 30, 1 / 30, 0, 1 / 30]),
        ("token_sum", [1, 1, 0, 1]),
        ("balanced", [1 / 6, 1 / 2, 0, 0]),  # one sequence of each sign; A = 0 takes no part
    ],
)
def test_weights_by_hand(aggregation: Aggregation, expected: list[float]) -> None:
    groups = torch.zeros(4, dtype=torch.long)
    weights = token_weights(LENGTHS, ADVANTAGES, aggregation, constant_length=10, groups=groups)
    assert weights.tolist() == pytest.approx(expected)


def test_balanced_is_a_mean_over_the_prompts_that_have_an_advantage() -> None:
    lengths, groups = torch.tensor([2, 2, 5, 5, 1, 1]), torch.tensor([7, 7, 3, 3, 9, 9])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.0, 0.0])
    weights = token_weights(lengths, advantages, "balanced", groups=groups)
    assert weights.tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 20, 1 / 20, 0, 0])


rows = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1.0, 0.0, 2.0]), st.integers(0, 2)), min_size=1)


@given(rows, st.sampled_from(get_args(Aggregation)))
def test_weights_are_finite_and_add_up(rows: list[tuple[int, float, int]], aggregation: Aggregation) -> None:
    lengths, groups = torch.tensor([n for n, _, _ in rows]), torch.tensor([g for _, _, g in rows])
    advantages = torch.tensor([a for _, a, _ in rows])
    weights = token_weights(lengths, advantages, aggregation, constant_length=5, groups=groups)
    total = (weights * lengths).sum().item()
    taking_part = (lengths > 0) & ((advantages != 0) | torch.tensor(aggregation != "balanced"))
    expected = {"constant_length": lengths.sum() / (5 * (lengths > 0).sum().clamp_min(1)), "token_sum": lengths.sum()}
    assert torch.isfinite(weights).all() and bool((weights >= 0).all())
    assert total == pytest.approx(float(expected.get(aggregation, taking_part.any())))


@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.sampled_from(get_args(Aggregation)))
def test_micro_batches_add_up_to_the_update(seed: int, cut: int, aggregation: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (6, 5)
    old = -torch.rand(shape, generator=generator, dtype=torch.float64)
    new = (old + torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    mask = torch.rand(shape, generator=generator) < 0.7
    advantages = torch.randint(-1, 2, (6,), generator=generator).double()
    groups = torch.randint(0, 3, (6,), generator=generator)
    objective = Objective(rule=published("dapo").rule, aggregation=aggregation, constant_length=5)
    whole = policy_loss(new, old, advantages, mask, objective, groups=groups).loss
    weight = token_weights(mask.sum(1), advantages, aggregation, constant_length=5, groups=groups)
    parts = [
        policy_loss(new[part], old[part], advantages[part], mask[part], objective, token_weight=weight[part]).loss
        for part in (slice(None, cut), slice(cut, None))
    ]
    (grad,), (summed,) = torch.autograd.grad(whole, new), torch.autograd.grad(sum(parts, torch.zeros(())), new)
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), rel=1e-12, abs=1e-12)
    assert torch.allclose(grad, summed, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [("constant_length", "constant_length >= 1, got None"), ("balanced", "needs groups"), ("mean", "want one of")],
)
def test_what_is_missing_is_named(aggregation: Any, message: str) -> None:
    def weights() -> Tensor:
        return token_weights(LENGTHS, ADVANTAGES, aggregation)

    with pytest.raises(ConfigError, match=message):
        weights()
