"""The loss against golden values that were checked with other people's implementations (objectives_golden.json)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from regimescope.monitor.bounds import Bounds, SignBounds, SignRule, WeightRule
from regimescope.trainer.config_file import preset_names, read_preset
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.objective import policy_loss

GOLDEN = json.loads(Path(__file__).with_name("objectives_golden.json").read_text())
CAPPED = ["cispo_1_100", "cispo_1_0.28", "cispo_cap_5", "reinforce_is", "dispo", "dispo_r3_off", "dispo_r4_off"]
DROPPED = ["dapo", "dapo_dual_clip"]


def fixture(dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """The five responses of the golden file, padded to a rectangle with values that would wreck the result."""
    data = GOLDEN["fixture"]
    shape = (len(data["lengths"]), max(data["lengths"]))
    old = torch.full(shape, data["pad_logp_old"], dtype=torch.float64)
    log_ratio = torch.full(shape, data["pad_log_ratio"], dtype=torch.float64)
    mask = torch.zeros(shape, dtype=torch.bool)
    for i, n in enumerate(data["lengths"]):
        old[i, :n] = torch.tensor(data["p_old"][i], dtype=torch.float64).log()
        log_ratio[i, :n] = torch.tensor(data["ratios"][i], dtype=torch.float64).log()
        mask[i, :n] = True
    advantages = torch.tensor(data["advantages"], dtype=dtype)
    return {
        "logp_new": (old + log_ratio).to(dtype).requires_grad_(),
        "logp_old": old.to(dtype),
        "advantages": advantages,
        "mask": mask,
    }


def bounds_of(case: dict[str, Any]) -> Bounds:
    sides = {sign: SignBounds(w_min=float(low), w_max=float(high)) for sign, (low, high) in case["bounds"].items()}
    return Bounds(**sides)


def rule_of(name: str) -> WeightRule:
    case = GOLDEN["objectives"][name]
    if case["beyond"] == "clamp":
        return WeightRule.capped(bounds_of(case))
    bounds = bounds_of(case)  # PPO drops above for A > 0 and below for A < 0; the dual clip drops above for A < 0
    dual = None if math.isinf(bounds.neg.w_max) else bounds.neg.w_max
    return WeightRule(
        pos=SignRule(drop_above=bounds.pos.w_max), neg=SignRule(drop_below=bounds.neg.w_min, drop_above=dual)
    )


def gradient(rule: WeightRule, dtype: torch.dtype = torch.float64) -> tuple[float, list[list[float]], torch.Tensor]:
    """(loss, gradient of the valid tokens, gradient everywhere)."""
    inputs = fixture(dtype)
    loss = policy_loss(**inputs, rule=rule).loss
    (grad,) = torch.autograd.grad(loss, inputs["logp_new"])
    return loss.item(), [grad[i, :n].tolist() for i, n in enumerate(GOLDEN["fixture"]["lengths"])], grad


@pytest.mark.parametrize("name", CAPPED)
def test_capped_objectives_reproduce_loss_and_gradient(name: str) -> None:
    loss, rows, grad = gradient(rule_of(name))
    case = GOLDEN["objectives"][name]
    assert loss == pytest.approx(case["loss"], abs=1e-9)
    for row, expected in zip(rows, case["dL_dlogp"], strict=True):
        assert row == pytest.approx(expected, abs=1e-9)
    assert grad[~fixture()["mask"]].abs().max() == 0


@pytest.mark.parametrize("name", DROPPED)
def test_objectives_that_drop_reproduce_the_gradient(name: str) -> None:
    _, rows, _ = gradient(rule_of(name))
    for row, expected in zip(rows, GOLDEN["objectives"][name]["dL_dlogp"], strict=True):
        assert row == pytest.approx(expected, abs=1e-9)


def test_online_sft_and_aspo_are_weight_rules_too() -> None:
    sft = WeightRule(pos=SignRule(base="1"), neg=SignRule(base="1", cap_low=0.0, cap_high=0.0))
    aspo = WeightRule(
        pos=SignRule(base="1/r", cap_high=3.0, drop_above=1.2), neg=SignRule(cap_high=3.0, drop_below=0.8)
    )
    for name, rule in (("online_sft", sft), ("aspo", aspo)):
        _, rows, _ = gradient(rule)
        for row, expected in zip(rows, GOLDEN["objectives"][name]["dL_dlogp"], strict=True):
            assert row == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["dispo", "dispo_r4_off", "dapo"])
def test_float32_is_close(name: str) -> None:
    _, rows, _ = gradient(rule_of(name), torch.float32)
    for row, expected in zip(rows, GOLDEN["objectives"][name]["dL_dlogp"], strict=True):
        assert row == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_presets_are_the_published_bounds() -> None:
    published = {"dispo": "dispo", "cispo": "cispo_1_100"}
    assert set(preset_names()) == set(published)
    for preset, case in published.items():
        bounds = read_preset(preset)["bounds"]
        assert {sign: list(map(float, pair)) for sign, pair in bounds.items()} == {
            sign: list(map(float, pair)) for sign, pair in GOLDEN["objectives"][case]["bounds"].items()
        }


def test_huge_log_ratios_are_cut_and_counted() -> None:
    old = torch.tensor([[-50.0, -1.0]])
    new = torch.tensor([[-1.0, -50.0]], requires_grad=True)
    out = policy_loss(new, old, torch.tensor([1.0]), torch.ones(1, 2, dtype=torch.bool), rule_of("reinforce_is"))
    assert out.terms.clamped.tolist() == [True, True]
    assert out.terms.ratio.tolist() == pytest.approx([math.exp(20), math.exp(-20)])
    assert torch.isfinite(out.loss)


def test_no_token_gives_a_zero_loss() -> None:
    out = policy_loss(
        torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), torch.zeros(1, 2, dtype=torch.bool), rule_of("dispo")
    )
    assert out.loss.item() == 0


def test_sequence_ratio_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="base 's'"):
        gradient(WeightRule(pos=SignRule(base="s"), neg=SignRule()))
