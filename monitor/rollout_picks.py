"""Which kept rollouts show an alert: the five that have most of what it is about, and the five with the highest reward,
from its onset to its last step. `rollouts_of_alert(con, run, alert)`; the page is `ui/views/worst_rollouts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from regimescope.monitor.records import AlertRow
from regimescope.monitor.rollout_rows import (
    RolloutFilter,
    RolloutRow,
    Sort,
    rollout_facets,
    rollouts_where,
)
from regimescope.monitor.series import Connection

SHOWN = 5
_MOST: Mapping[str, tuple[Sort, str]] = {
    "repetition_collapse": ("-repetition", "most repetition"),
    "length_collapse": ("length", "shortest"),
    "length_runaway": ("-length", "longest"),
    "truncation_saturated": ("-length", "longest"),
}
"Signature to what its worst rollouts have most of."
_LOWEST: tuple[Sort, str] = ("reward", "lowest reward")
_SPARE = 8
"Rows asked for per row shown: those whose number is not finite are left out."


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsOfAlert:
    """The rows, and where they come from."""

    worst: Sequence[RolloutRow]
    best: Sequence[RolloutRow]
    "By reward: where reward is hacked, these are the suspects."
    word: str
    "What the worst have most of."
    first: int
    last: int
    "Steps that were looked through; without rows there, the nearest step before that has some."
    inside: bool
    "Whether rows were kept between onset and last step."


def rollouts_of_alert(con: Connection, run_key: int, alert: AlertRow) -> RolloutsOfAlert | None:
    """None: no rollout of the run was kept, or none of the alert's environment."""
    env = alert.slice.removeprefix("env=") if alert.slice and alert.slice.startswith("env=") else None
    found = _steps(rollout_facets(con, run_key).steps, alert.step_onset, max(alert.step_last, alert.step_detected))
    if found is None:
        return None
    first, last, inside = found
    where = RolloutFilter(steps=(first, last), env=env)
    if alert.signature == "infra_failed":
        worst, word = _finite(con, run_key, replace(where, finish_reason="infra"), "-step"), "failed rollouts"
    else:
        sort, word = _MOST.get(alert.signature, _LOWEST)
        worst = [row for row in _finite(con, run_key, where, sort) if row.finish_reason != "infra"]
    best = _finite(con, run_key, where, "-reward")
    if not worst and not best:
        return None
    shown = worst[:SHOWN]
    kept = {(row.step, row.rank, row.sample_id) for row in shown}
    others = [row for row in best if (row.step, row.rank, row.sample_id) not in kept][:SHOWN]
    return RolloutsOfAlert(worst=shown, best=others, word=word, first=first, last=last, inside=inside)


def _steps(steps: Sequence[int], onset: int, last: int) -> tuple[int, int, bool] | None:
    if any(onset <= step <= last for step in steps):
        return onset, last, True
    before = [step for step in steps if step < onset]
    return (before[-1], before[-1], False) if before else None


def _finite(con: Connection, run_key: int, where: RolloutFilter, sort: Sort) -> list[RolloutRow]:
    rows = rollouts_where(con, run_key, where, sort=sort, limit=_SPARE * SHOWN)
    name = sort.removeprefix("-")
    return [row for row in rows if (value := getattr(row, name)) is not None and math.isfinite(value)]
