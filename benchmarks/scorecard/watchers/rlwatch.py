"""rlwatch at its defaults: the alerts that pass its own cooldown."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import rlwatch.alerts
from benchmarks.scorecard.watchers import Alarm, metrics
from rlwatch.config import load_config
from rlwatch.core import RLWatch

logging.disable(logging.CRITICAL)
rlwatch.alerts._log_alert_console = lambda alert, run_id: None  # would print each alert


class Watcher:
    """A monitor with a database in `folder`."""

    def __init__(self, folder: Path, objective: str) -> None:
        self._monitor = RLWatch(load_config(config_path=os.devnull, storage={"log_dir": str(folder)}))
        self._monitor.start()

    def update(self, row: Mapping[str, float]) -> list[Alarm]:
        alerts = self._monitor.log_step(
            int(row["step"]),
            entropy=row.get("entropy_mean"),
            kl_divergence=metrics.kl(row),
            reward_mean=row.get("reward_mean"),
            reward_std=row.get("reward_std"),
            loss=row.get("loss"),
            grad_norm=row.get("grad_norm"),
            clip_fraction=metrics.clip_fraction(row),
        )
        return [Alarm(alert.detector, alert.severity) for alert in alerts]

    def close(self) -> None:
        self._monitor.stop()
