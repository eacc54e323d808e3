"""rlprobe at its defaults: its doctor over the run so far, every 25 rows from the 30th on, each (signature, severity)
counted once, as its own live mode does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.scorecard.watchers import Alarm, metrics
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

FIRST = 30
LEVELS = {"warn": "warning", "critical": "critical"}


class Watcher:
    """Keeps all rows."""

    every = 25

    def __init__(self, folder: Path, objective: str) -> None:
        self._manifest = RunManifest(run_id="r", created_at="", algorithm="grpo")
        self._records: list[StepRecord] = []
        self._seen: set[tuple[str, str]] = set()

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        self._records.append(_record(row))
        if len(self._records) < FIRST or len(self._records) % self.every:
            return []
        findings = diagnose_view(RunView(self._manifest, self._records))
        fresh = [found for found in findings if (found.signature_id, found.severity) not in self._seen]
        self._seen.update((found.signature_id, found.severity) for found in fresh)
        return [Alarm(found.signature_id, LEVELS[found.severity]) for found in fresh if found.severity in LEVELS]

    def close(self) -> None:
        pass


def _record(row: Mapping[str, float]) -> StepRecord:
    loss = row.get("loss")
    return StepRecord(
        step=int(row["step"]),
        entropy_mean=row.get("entropy_mean"),
        reward_mean=row.get("reward_mean"),
        completion_len_mean=row.get("response_length_mean"),
        repetition_rate=row.get("rep4_mean"),
        truncation_rate=row.get("truncated_frac"),
        clip_fraction=metrics.clip_fraction(row),
        zero_variance_group_frac=row.get("zero_variance_frac"),
        kl_mean=metrics.kl(row),
        grad_norm=row.get("grad_norm"),
        nan_count=1 if loss is not None and not math.isfinite(loss) else None,
    )
