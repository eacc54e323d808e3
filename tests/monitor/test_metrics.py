"""The metric table: the CSV, the page, and what is said of names that are not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from regimescope.monitor.metrics import METRICS, metric_info, table

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

CANONICAL = (
    "reward_mean", "reward_std", "accuracy", "eval.accuracy", "zero_variance_frac", "all_correct_frac",
    "all_wrong_frac", "entropy_mean", "kl_ref", "kl_step", "grad_norm", "lr", "loss", "response_length_mean",
    "response_length_min", "response_length_max", "response_length_p10", "response_length_p50",
    "response_length_p90", "response_length_p99", "response_length_correct_mean",
    "response_length_incorrect_mean", "eos_frac", "truncated_frac", "short_frac", "aborted_frac",
    "infra_failed_frac", "rep4_mean", "rep20_mean", "repetition_frac", "tail_loop_frac", "sure_run_frac",
    "adv_mean", "adv_min", "adv_max", "clip_all", "clip_pos_high_all", "clip_neg_low_all", "clip_neg_dual_all",
    "ratio_mean", "ratio_min", "ratio_max", "lag_mean", "lag_p95", "lag_max", "mismatch_k1", "mismatch_k3",
    "mismatch_logp_abs", "mismatch_ratio_mean", "mismatch_ratio_min", "mismatch_ratio_max", "mismatch_ess",
    "tail_loop_share_mean", "sure_run_mean", "compression_mean", "compressible_frac", "kl_step_k3", "ess_frac",
    "weight_ess_frac", "logit_norm_mean", "nonfinite_tokens", "mismatch_factor_mean", "mismatch_masked_frac",
    "sampled_prompts", "step_seconds", "rollout_seconds", "update_seconds", "stats_seconds", "record_seconds",
    "tokens", "updates",
)  # fmt: skip


def test_the_page_shows_the_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_every_canonical_name_is_there() -> None:
    assert set(CANONICAL) <= set(METRICS)


def test_every_row_is_complete() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.description.endswith(".")
        assert "|" not in metric.description


def test_extremes_combine_as_extremes() -> None:
    for name, metric in METRICS.items():
        if name.endswith(("_min", "_max")):
            assert metric.agg == name[-3:]


@pytest.mark.parametrize(
    "name, agg, unit",
    [
        ("tokens", "sum", "tokens"),
        ("eval.response_length_max", "max", "tokens"),
        ("eval.accuracy", "mean", "share"),
        ("mine", "mean", ""),
    ],
)
def test_info(name: str, agg: str, unit: str) -> None:
    info = metric_info(name)
    assert (info.name, info.agg, info.unit) == (name, agg, unit)
