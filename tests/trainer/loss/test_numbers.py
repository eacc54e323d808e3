"""Numbers besides the buckets: golden effective sample sizes, and any split adds to the whole."""

import json
import math
from dataclasses import fields
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from regimescope.trainer.loss.mismatch import MismatchCorrection
from regimescope.trainer.loss.numbers import LossNumbers, joined, loss_numbers
from regimescope.trainer.loss.objective import KlPenalty, Objective, PolicyLoss, policy_loss
from regimescope.trainer.loss.published import published

GOLDEN = json.loads((Path(__file__).parents[1] / "objectives_golden.json").read_text())


def loss_of(
    log_ratios: list[float], advantages: list[float], objective: Objective | None = None
) -> tuple[PolicyLoss, torch.Tensor]:
    """(loss of tokens in rows of one, sum p^2 of each: .5)."""
    new = torch.tensor(log_ratios, dtype=torch.float64)[:, None] - 1
    shifted = torch.full_like(new, -1.0)
    mask = torch.ones_like(new, dtype=torch.bool)
    signs = torch.tensor(advantages, dtype=torch.float64)
    objective = objective or published("dispo")
    out = policy_loss(new, shifted, signs, mask, objective, logp_ref=shifted, logp_infer=shifted + 1.0)
    return out, torch.full((len(log_ratios),), 0.5, dtype=torch.float64)


def numbers_of(loss: PolicyLoss, sum_p2: torch.Tensor) -> LossNumbers:
    return LossNumbers.of(loss_numbers(loss, sum_p2).tolist())


def test_effective_sample_sizes_are_the_golden_ones() -> None:
    """r over all 12 tokens, w over the 10 with an advantage."""
    data = GOLDEN["fixture"]
    log_ratios = [math.log(r) for row in data["ratios"] for r in row]
    advantages = [a for a, row in zip(data["advantages"], data["ratios"], strict=True) for _ in row]
    numbers = numbers_of(*loss_of(log_ratios, advantages))
    assert (numbers.tokens, numbers.weighted) == (12, 10)
    assert numbers.ess_frac == pytest.approx(GOLDEN["diagnostics"]["dispo"]["ess_frac"])
    assert numbers.weight_ess_frac == pytest.approx(GOLDEN["diagnostics"]["dispo"]["ess_frac_weighted"])
    assert (numbers.ratio_max, numbers.ratio_min) == pytest.approx((128, 2**-10))


def test_kl_mismatch_and_logit_norm_are_summed() -> None:
    """ref = old: KL k2 of one token at log r = 1 is 1/2; rho = 1/e < floor masks all; norm = sqrt(1 - 2p + .5)."""
    objective = Objective(
        rule=published("dispo").rule,
        kl=KlPenalty(coef=1.0, estimator="k2"),
        mismatch=MismatchCorrection(mode="token_mask", floor=0.5),
    )
    numbers = numbers_of(*loss_of([1.0, 0.0], [1.0, -1.0], objective))
    assert numbers.kl_sum == pytest.approx(0.5) and numbers.masked == 2 and numbers.factor_sum == 0
    assert numbers.logit_norm_sum == pytest.approx(math.sqrt(1.5 - 2 * math.exp(-1)))  # the first has p = 1


def test_without_a_token_or_a_weight_the_shares_are_nan() -> None:
    numbers = numbers_of(*loss_of([], []))
    assert math.isnan(numbers.ess_frac) and math.isnan(numbers.weight_ess_frac) and numbers.ratio_max == -math.inf


tokens = st.lists(
    st.tuples(st.one_of(st.floats(-25, 25), st.just(math.nan)), st.sampled_from([-1.0, 0.0, 2.0])),
    min_size=1,
    max_size=12,
)


@given(tokens, st.integers(0, 12))
def test_parts_add_up_to_the_whole(pairs: list[tuple[float, float]], cut: int) -> None:
    def vector(part: list[tuple[float, float]]) -> torch.Tensor:
        return loss_numbers(*loss_of([x for x, _ in part], [a for _, a in part]))

    whole, parts = LossNumbers.of(vector(pairs).tolist()), joined(vector(pairs[:cut]), vector(pairs[cut:])).tolist()
    for f in fields(LossNumbers):
        one, two = getattr(whole, f.name), getattr(LossNumbers.of(parts), f.name)
        assert two == pytest.approx(one, rel=1e-12, nan_ok=True), f.name
    assert whole.nonfinite == sum(math.isnan(x) for x, _ in pairs)
