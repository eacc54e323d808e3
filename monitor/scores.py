"""The score of one alert's rule at each step, from the detectors once more over the stored steps: what the card draws
below the metric. 1 is the threshold.

    scores(con, run_key, alert, rules, last=449)     # Series of steps and scores; None while the rule was quiet

The live replay and the alert table stay as they are. Only the launches and steps that the alert's own replay saw.
"""

from __future__ import annotations

from regimescope.detectors import Finding, Rules
from regimescope.monitor.query import AlertRow, Connection, Series
from regimescope.monitor.replay import LaunchReplay
from regimescope.monitor.timeline import Point, read_launches, read_parts, read_span, steps_after

MOST = 2_000
"Steps that are replayed at most: a page waits for it."


def scores(con: Connection, run_key: int, alert: AlertRow, rules: Rules, *, first: int, last: int) -> Series | None:
    """Of first <= step <= last; None where that would take too long. Raises duckdb.Error."""
    if last > MOST:
        return None
    launches = [launch for launch in read_launches(con, run_key) if launch.launch_no <= alert.launch_no]
    found: dict[int, float | None] = {}
    if launches:
        replay = LaunchReplay(launches, rules)
        parts = read_parts(con, run_key, replay.of_slices)
        for launch, begin, end in replay.surviving():
            seen = steps_after(con, run_key, launch, begin - 1)
            seen = [step for step in seen if step[0] <= last and (end is None or step[0] < end)]
            for point in read_span(con, run_key, launch, seen, parts):
                replay.give(launch, [point])
                if point.step >= first:
                    found[point.step] = _score(replay, alert, point)
    return Series(steps=list(found), values=list(found.values()), nonfinite=[])


def _score(replay: LaunchReplay, alert: AlertRow, point: Point) -> float | None:
    """That of the rule's own episode, where it had something to say at this very step."""
    findings: list[Finding] = [*replay.suite.findings(), *replay.suite.pending()]
    if alert.slice is not None:
        findings = [*replay.slices.findings()]
    for finding in findings:
        same = finding.rule == alert.rule and finding.ordinal == alert.ordinal
        if same and alert.slice in (None, f"env={finding.slice}") and finding.step_last == point.step:
            return finding.score
    return None
