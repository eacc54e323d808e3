"""Group advantages against the golden values of two frameworks' conventions."""

import json
import math
from pathlib import Path

import pytest
import torch

from regimescope.trainer.advantages import group_advantages, overlong_penalty

MISC = json.loads(Path(__file__).with_name("objectives_golden.json").read_text())["misc"]
GOLDEN, OVERLONG = MISC["advantage"], MISC["overlong_penalty"]


def test_sample_standard_deviation_and_eps() -> None:
    rewards = torch.tensor([GOLDEN["rewards"]], dtype=torch.float64)
    assert group_advantages(rewards, eps=0.0).advantages[0].tolist() == pytest.approx(GOLDEN["std_ddof_1"])
    assert group_advantages(rewards).advantages[0].tolist() == pytest.approx(GOLDEN["verl_ddof_1_eps_1e-6"], abs=1e-7)
    assert group_advantages(rewards, eps=1e-4).advantages[0].tolist() == pytest.approx(
        GOLDEN["trl_ddof_1_eps_1e-4"], abs=1e-7
    )


@pytest.mark.parametrize("correct", [1, 4, 8, 15])
def test_sixteen_responses_by_number_correct(correct: int) -> None:
    rewards = torch.tensor([[1.0] * correct + [-1.0] * (16 - correct)])
    advantages = group_advantages(rewards, eps=0.0).advantages[0]
    good, bad = GOLDEN["group_of_16_ddof_1_by_number_correct"][str(correct)]
    assert advantages[0].item() == pytest.approx(good)
    assert advantages[-1].item() == pytest.approx(bad)


def test_equal_rewards_are_zero_and_unusable() -> None:
    result = group_advantages(torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))
    assert result.usable.tolist() == [[False, False], [True, True], [False, False]]
    assert result.advantages[0].tolist() == result.advantages[2].tolist() == [0.0, 0.0]


def test_other_conventions() -> None:
    rewards = torch.tensor([GOLDEN["rewards"]], dtype=torch.float64)
    population = group_advantages(rewards, ddof=0, eps=0.0).advantages[0]
    assert population.tolist() == pytest.approx(GOLDEN["std_ddof_0"])
    assert group_advantages(rewards, std=False).advantages[0].tolist() == pytest.approx(GOLDEN["dr_grpo_no_std"])


def test_a_group_with_one_verdict_leaves_or_keeps_its_reward() -> None:
    rewards = torch.tensor([[math.nan, -1.0, math.nan]])
    assert not group_advantages(rewards).usable.any()
    raw = group_advantages(rewards, singleton="raw", eps=0.0)  # verl: mean 0, std 1
    assert raw.advantages.tolist() == [[0.0, -1.0, 0.0]] and raw.usable.tolist() == [[False, True, False]]


def test_equal_groups_may_stay_with_an_advantage_of_zero() -> None:
    rewards = torch.tensor([[1.0, 1.0, math.nan], [1.0, -1.0, -1.0], [math.nan, math.nan, 1.0]])
    kept = group_advantages(rewards, equal_groups="keep")
    assert kept.usable.tolist() == [[True, True, False], [True, True, True], [False, False, False]]
    assert kept.advantages[0].tolist() == [0.0, 0.0, 0.0]


def test_equal_rewards_that_a_float_cannot_average_are_zero() -> None:
    result = group_advantages(torch.full((1, 3), 0.1))
    assert result.advantages.tolist() == [[0.0, 0.0, 0.0]] and not result.usable.any()


def test_a_response_without_verdict_leaves_its_group() -> None:
    rewards = torch.tensor([[1.0, -1.0, math.nan, -1.0, -1.0], [1.0, math.nan, math.nan, 1.0, 1.0], [math.nan] * 5])
    result = group_advantages(rewards, eps=0.0)
    assert result.advantages[0].tolist() == pytest.approx([1.5, -0.5, 0.0, -0.5, -0.5])
    assert result.usable.tolist() == [[True, True, False, True, True], [False] * 5, [False] * 5]


@pytest.mark.parametrize(("length", "penalty"), OVERLONG["by_length"].items())
def test_soft_overlong_penalty(length: str, penalty: float) -> None:
    assert overlong_penalty(int(length), limit=OVERLONG["hard_limit"], cache=OVERLONG["cache"]) == penalty


def test_without_a_cache_there_is_no_penalty_within_the_limit() -> None:
    assert overlong_penalty(96, limit=96, cache=0) == 0.0
