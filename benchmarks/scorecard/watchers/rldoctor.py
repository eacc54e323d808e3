"""rldoctor's live monitor at its defaults: warnings and above, every 25 rows from the 60th on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from benchmarks.scorecard.watchers import Alarm, metrics
from rl_doctor.live import LiveMonitor

KEYS = {
    "entropy_mean": "entropy", "reward_mean": "reward", "response_length_mean": "completions/mean_length",
    "truncated_frac": "completions/clipped_ratio", "zero_variance_frac": "frac_reward_zero_std",
    "grad_norm": "grad_norm", "eval.accuracy": "eval_score",
}  # fmt: skip

logging.disable(logging.CRITICAL)


class Watcher:
    """Keeps all rows."""

    def __init__(self, folder: Path, objective: str) -> None:
        config = {"algorithm": "grpo", "num_generations": 8}
        self._monitor = LiveMonitor(config=config, check_every=25, min_steps=60, on_finding=lambda finding: None)

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        record = {theirs: row[ours] for ours, theirs in KEYS.items() if ours in row}
        clipped = metrics.clip_fraction(row)
        if clipped is not None:
            record["clip_ratio/region_mean"] = clipped
        findings = self._monitor.log(record, step=int(row["step"]))
        return [
            Alarm(found.detector, "critical" if found.severity.name == "CRITICAL" else "warning") for found in findings
        ]

    def close(self) -> None:
        pass
