"""Is a run alive: how long it is silent by the monitor's own clock, measured against its own step time.

The trainer's clock is used for durations only (the step time), never to say how long ago something was. A heartbeat is
any new byte in a segment, repeated `state` events included: a trainer that pauses or waits for rollouts is not silent.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from regimescope.monitor import query
from regimescope.monitor.records import RunRow

STALE_STEPS = 3.0
"A run is stale after this many median step times of silence, but never before STALE_FLOOR_S."
STALE_FLOOR_S = 15.0
"Three heartbeats of a paused trainer; a short step may take long once."
GAP_STEPS = 5.0
"`telemetry_gap` fires after this many median step times, but never before GAP_FLOOR_S."
GAP_FLOOR_S = 25.0
UNKNOWN_STALE_S = 120.0
"Before two steps are done there is no step time: loading a model takes a while."
CRASHED_STEPS = 10.0
CRASHED_FLOOR_S = 300.0
"A run without an end line is called crashed after this silence, or 10 step times, the longer."

WINDOW = 30
"Steps whose times make the median."


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What the verdict needs to know beside the alerts."""

    silent_s: float
    "Since the last new byte in a segment of the run, by the monitor's clock."
    median_step_s: float | None
    "Of the last steps; None before two are done."
    stale: bool
    "Silent for longer than three steps, and not ended."
    ended: bool
    "The newest launch has an end line. A run that was given up as crashed is stale, not ended."
    state: str | None
    "running | waiting_rollouts | paused | evaluating | checkpointing; None = it never said."
    state_since: float | None
    "Unix seconds of the trainer's clock."
    last_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What the silence of a run is measured against, as of its last news; saves a query a tick."""

    ended: bool
    state: str | None
    median_step_s: float | None

    def gap(self, silent_s: float) -> bool:
        """Silent for longer than five steps while it should be running: the alert `telemetry_gap`."""
        if self.ended or self.median_step_s is None or self.state not in (None, "running"):
            return False
        return silent_s > max(GAP_FLOOR_S, GAP_STEPS * self.median_step_s)


def liveness(run: RunRow | None, median: float | None, silent_s: float | None) -> Liveness:
    """Of the newest launch. `median`: its step time, seconds. `silent_s`: None when the run has no segment that could
    grow (imported).
    """
    over = run is not None and run.end_reason not in (None, "rollback")  # that one goes on in a new launch at once
    ended = run is None or over or run.status in ("ended", "imported") or silent_s is None
    silence = silent_s or 0.0
    limit = UNKNOWN_STALE_S if median is None else max(STALE_FLOOR_S, STALE_STEPS * median)
    return Liveness(
        silent_s=silence,
        median_step_s=median,
        stale=not ended and silence > limit,
        ended=ended,
        state=run.state if run else None,
        state_since=run.state_since if run else None,
        last_step=run.last_step if run else None,
    )


def median_step_s(con: query.Connection, run_key: int) -> float | None:
    """Median time between the ends of the last steps of the newest launch, seconds; None before two are done."""
    return median_gap(query.step_times(con, run_key, WINDOW + 1))


def median_gap(ends: Iterable[float]) -> float | None:
    """Median time between the last WINDOW + 1 of these ascending ends of steps, seconds; None with fewer than two."""
    times = list(ends)[-WINDOW - 1 :]
    return statistics.median(b - a for a, b in pairwise(times)) if len(times) > 1 else None


def crashed(silent_s: float, median: float | None) -> bool:
    """Whether a run without an end line is given up."""
    return silent_s > max(CRASHED_FLOOR_S, CRASHED_STEPS * (median or 0.0))
