"""Shares of groups, means with their weights, and what is left out because it was not measured."""

import math

import pytest
import torch

from regimescope.monitor.edges import LENGTH_EDGES
from regimescope.trainer.advantages import group_advantages
from regimescope.trainer.answers.verifier import Outcome
from regimescope.trainer.loss.numbers import LossNumbers
from regimescope.trainer.responses import Response
from regimescope.trainer.sampling import Judged
from regimescope.trainer.step_metrics import length_counts, penalty_metrics, rollout_metrics, update_metrics
from regimescope.trainer.update import UpdateTotals


def judged(rows: list[list[float]]) -> Judged:
    outcome: dict[bool | None, Outcome] = {True: "correct", False: "incorrect", None: "infra_failed"}
    verdicts = [None if math.isnan(reward) else reward > 0 for row in rows for reward in row]
    responses = [Response(token_ids=(5, 6, 7, 1), ended=True, outcome=outcome[verdict]) for verdict in verdicts]
    return Judged(prompts=[[2]] * len(responses), responses=responses, rewards=torch.tensor(rows), weight_version=0)


def test_groups_and_rewards() -> None:
    nan = math.nan
    batch = judged([[1.0, 1.0, 1.0], [-1.0, -1.0, nan], [1.0, -1.0, -1.0], [nan, nan, nan]])
    metrics = rollout_metrics(batch, group_advantages(batch.rewards), torch.full((12,), 2.0))
    assert metrics["reward_mean"] == (0.0, 8.0)
    assert metrics["accuracy"] == (pytest.approx(4 / 12), 12.0)
    assert metrics["infra_failed_frac"] == (pytest.approx(4 / 12), 12.0)
    assert metrics["zero_variance_frac"] == (0.75, 4.0)
    assert metrics["all_correct_frac"] == (0.25, 4.0)
    assert metrics["all_wrong_frac"] == (0.25, 4.0)
    assert metrics["reward_std"] == (1.0, 8.0)
    assert metrics["entropy_mean"] == (0.5, 48.0)
    assert metrics["tokens"] == 48.0


def test_groups_are_named_by_their_verdicts_also_where_a_length_penalty_makes_rewards_differ() -> None:
    batch = judged([[1.0, 0.5], [-1.0, -1.5]])
    metrics = rollout_metrics(batch, group_advantages(batch.rewards), torch.zeros(4))
    assert metrics["all_correct_frac"] == metrics["all_wrong_frac"] == (0.5, 2.0)
    assert metrics["zero_variance_frac"] == (0.0, 2.0)
    assert metrics["reward_mean"] == (0.0, 4.0)  # the verifier's, before the penalty


def test_a_step_without_any_verdict_has_no_reward() -> None:
    batch = judged([[math.nan, math.nan]])
    assert "reward_mean" not in rollout_metrics(batch, group_advantages(batch.rewards), torch.zeros(4))


def test_a_penalty_that_turns_the_sign_is_counted() -> None:
    """Rewards 1, -.5 (correct, overlong), -1, -1: the mean is -.375, so the second has A < 0 though it is correct."""
    batch = judged([[1.0, 0.5, -1.0, -1.0]])
    rewards = torch.tensor([[1.0, -0.5, -1.0, -1.0]])
    batch = Judged(prompts=batch.prompts, responses=batch.responses, rewards=rewards, weight_version=0)
    groups = group_advantages(batch.rewards, std=False)
    metrics = rollout_metrics(batch, groups, torch.zeros(4))
    assert metrics["sign_label_mismatch_frac"] == (0.25, 4.0)
    assert metrics["adv_max"] == 1.375 and metrics["adv_min"] == -0.625 and metrics["adv_mean"] == (0.0, 4.0)


NUMBERS = LossNumbers(
    tokens=200.0, ratio_sum=220.0, ratio_sq_sum=484.0, weighted=100.0, weight_sum=50.0, weight_sq_sum=50.0,
    logit_norm_sum=20.0, nonfinite=0.0, kl_sum=4.0, factor_sum=190.0, masked=3.0, ratio_max=2.5, ratio_min=0.5,
)  # fmt: skip


def test_updates_without_statistics_have_no_kl() -> None:
    totals = UpdateTotals(lag=4, tokens=100, grad_norms=(1.0, 3.0), numbers=NUMBERS, whole=NUMBERS)
    metrics = update_metrics(totals)
    assert metrics["grad_norm"] == (2.0, 2.0) and metrics["ratio_max"] == 2.5 and metrics["ratio_min"] == 0.5
    assert metrics["lag_mean"] == (4.0, 100.0) and metrics["lag_p95"] == metrics["lag_max"] == 4.0
    assert metrics["ratio_mean"] == (1.1, 200.0) and metrics["logit_norm_mean"] == (0.1, 200.0)
    assert metrics["ess_frac"] == (0.5, 200.0) and metrics["weight_ess_frac"] == (0.5, 100.0)
    assert not {"kl_step", "skipped_updates", "nonfinite_tokens"} & set(metrics)
    assert penalty_metrics(totals, kl=False, mismatch=False) == {}
    assert penalty_metrics(totals, kl=True, mismatch=True) == {
        "kl_ref": (0.02, 200.0),
        "mismatch_factor_mean": (0.95, 200.0),
        "mismatch_masked_frac": (0.015, 200.0),
    }


def test_lengths_fall_into_the_named_bins() -> None:
    responses = [Response(token_ids=(0,) * n, ended=False, outcome="incorrect") for n in (0, 1, 5, 5)]
    counts = length_counts(responses)
    assert len(counts) == len(LENGTH_EDGES) + 1 and sum(counts) == 4
    assert counts[0] == 1 and counts[LENGTH_EDGES.index(1) + 1] == 1 and counts[LENGTH_EDGES.index(4) + 1] == 2
