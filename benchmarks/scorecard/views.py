"""What of a run a detector is shown: all of it, or the columns that a plain log holds."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.scorecard.cases import Case, Row

ALL = "all columns"
LOG = "log columns only"
COUNTLESS = "the same without accuracy.n"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    LOG: (
        "step", "accuracy", "accuracy.n", "reward_mean", "reward_std", "loss", "entropy_mean", "response_length_mean",
        "rep4_mean", "repetition_frac", "truncated_frac", "zero_variance_frac", "all_wrong_frac", "eval.accuracy",
    ),
    COUNTLESS: (
        "step", "accuracy", "reward_mean", "reward_std", "loss", "entropy_mean", "response_length_mean", "rep4_mean",
        "repetition_frac", "truncated_frac", "zero_variance_frac", "all_wrong_frac", "eval.accuracy",
    ),
    "a plain TRL log": (
        "step", "reward_mean", "reward_std", "loss", "entropy_mean", "response_length_mean", "truncated_frac",
        "zero_variance_frac", "grad_norm",
    ),
    "a plain verl log": (
        "step", "reward_mean", "loss", "entropy_mean", "response_length_mean", "truncated_frac", "grad_norm",
        "kl_step", "eval.accuracy",
    ),
}  # fmt: skip
"""View -> its columns; no bounds, no buckets in any, no KL and no gradient norm in the first two. TRL 1.16 has its KL
with beta > 0 only; neither logs an accuracy in training, responses per step, or repetition. verl has no dead groups."""
BESIDE = tuple(name for name in COLUMNS if name != LOG)
"Views that only ours is shown in."


def seen(case: Case, view: str) -> list[Row]:
    """The rows of a run in that view."""
    if view == ALL:
        return list(case.rows)
    return [{name: row[name] for name in COLUMNS[view] if name in row} for row in case.rows]
