"""What a rule for one series is put on: the metrics of a step, and which way is bad."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

WORSE = {
    "response_length_mean": -1, "entropy_mean": -1, "accuracy": -1, "reward_mean": -1, "rep4_mean": 1,
    "repetition_frac": 1, "truncated_frac": 1, "zero_variance_frac": 1, "all_wrong_frac": 1, "grad_norm": 1,
    "kl_step": 1, "kl_ref": 1,
}  # fmt: skip
"Metric -> 1 where a rise is bad, -1 where a fall is."


def watched(row: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """The finite ones of a row."""
    for name in WORSE:
        value = row.get(name)
        if value is not None and math.isfinite(value):
            yield name, value


def clip_fraction(row: Mapping[str, float]) -> float | None:
    """Share of all tokens that were clipped, from the log or from the buckets."""
    if "clip_all" in row:
        return row["clip_all"]
    parts = [
        row[f"{regime}.token_frac"] * (row.get(f"{regime}.clip_high_frac", 0.0) + row.get(f"{regime}.clip_low_frac", 0))
        for regime in ("R1", "R2", "R3", "R4")
        if f"{regime}.token_frac" in row
    ]
    return sum(parts) if parts else None


def kl(row: Mapping[str, float]) -> float | None:
    """The one KL that most detectors take."""
    return row.get("kl_ref", row.get("kl_step"))
