"""Outcomes drawn by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from regimescope.trainer.lab.labels import label
from regimescope.trainer.lab.outcomes import Alerted, Outcome
from regimescope.trainer.lab.plan import LabRun

LONG, LOOPS, SHORT = (30.0, 0.05), (90.0, 0.9), (4.0, 0.0)
"Length and rep-4 of an answer."
Make = Callable[..., Outcome]


@pytest.fixture
def make() -> Make:
    """A run of one arm: an accuracy per step, its answers, its entropy, its alerts."""

    def made(
        arm: str,
        accuracy: Sequence[float],
        *,
        seed: int = 0,
        condition: str = "fresh",
        name: str = "",
        answers: tuple[float, float] = LONG,
        bad_from: int = 10_000,
        entropy: float = 0.1,
        alerts: Sequence[Alerted] = (),
    ) -> Outcome:
        rows = []
        for step, value in enumerate(accuracy):
            length, rep4 = answers if step >= bad_from else LONG
            row = {"step": float(step), "accuracy": value, "response_length_mean": length, "rep4_mean": rep4}
            rows.append({**row, "entropy_mean": entropy})
        run = LabRun(name=name or f"{condition}-{arm}-s{seed}", condition=condition, arm=arm, seed=seed, options=())
        return Outcome(run=run, rows=rows, labels=label(rows), alerts=alerts, seconds=1.0)

    return made


def alert(signature: str, *, onset: int, detected: int) -> Alerted:
    return Alerted(
        signature=signature, severity="warning", step_onset=onset, step_detected=detected, driver=None, inhibited=False
    )
