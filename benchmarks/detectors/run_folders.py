"""Runs of our own trainer, as the detectors get them: `read_folders(root)`, every run folder below the root.

The monitor's own replay reads the segments (monitor/replay.py, monitor/timeline.py), so rows, bucket columns, declared
bounds, events and env slices are those of a live run, to the digit. A run that was resumed is what its newest launch
sees: the surviving steps before it, and its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._runs import BenchmarkError

from regimescope.detectors import Event, Finding, Rules, Slices, Suite, load_rules
from regimescope.monitor.errors import RunError
from regimescope.monitor.private import read_root
from regimescope.monitor.query import Connection, list_runs
from regimescope.monitor.replay import LaunchReplay
from regimescope.monitor.segments import find_runs
from regimescope.monitor.timeline import read_launches, read_parts, read_span, steps_after

NOTE = "lab.json"
"What the lab wrote beside the segments: arm, condition, seed, settings."


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the suites are given at one step."""

    step: int
    "Its number."
    metrics: Mapping[str, float]
    "Canonical names, bucket columns, bounds in force."
    parts: Mapping[str, Mapping[str, float]]
    "The same of the env slices, by value."
    events: Sequence[Event]
    "Start, changes of bounds, dated events."


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One run."""

    path: str
    "Below the root, with `/`."
    steps: Sequence[Step]
    "In order."
    ended: bool
    "Whether its trainer said that it is done."
    note: Mapping[str, object]
    "Of lab.json; empty without one."


def is_root(folder: Path) -> bool:
    """Whether a run of ours lies below."""
    return bool(find_runs(folder))


def read_folders(root: Path) -> list[Folder]:
    """Every run below the root that has steps, by path. Raises BenchmarkError when it cannot be read."""
    rules = load_rules()
    try:
        with read_root(root, rollouts=False) as monitor, monitor.store.cursor() as con:
            runs = [_read(con, root, run.run_key, run.path, rules) for run in list_runs(con)]
    except RunError as error:
        raise BenchmarkError(str(error)) from None
    return sorted((run for run in runs if run.steps), key=lambda run: run.path)


def findings(steps: Sequence[Step]) -> list[Finding]:
    """Of fresh suites over the steps, the whole run's and the slices', in order of detection."""
    suite = Suite()
    slices = Slices(suite)
    for step in steps:
        suite.update(step.step, step.metrics, step.events)
        slices.update(step.step, step.parts, step.events)
    return sorted([*suite.findings(), *slices.findings()], key=lambda finding: finding.step_detected)


def _read(con: Connection, root: Path, run_key: int, path: str, rules: Rules) -> Folder:
    launches = read_launches(con, run_key)
    if not launches:
        return Folder(path=path, steps=[], ended=False, note={})
    replay, tape = LaunchReplay(launches, rules), _Tape()
    replay.suite, replay.slices = _Whole(tape=tape), tape  # type: ignore[assignment]
    for launch, first, end in replay.surviving():
        parts = read_parts(con, run_key, replay.of_slices)
        steps = [seen for seen in steps_after(con, run_key, launch, first - 1) if end is None or seen[0] < end]
        replay.give(launch, read_span(con, run_key, launch, steps, parts))
    file = root / path / NOTE
    note = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return Folder(path=path, steps=tape.steps, ended=launches[-1].ended, note=note)


@dataclass(slots=True, kw_only=True)
class _Tape:
    """Stands for the suites of the slices, which are updated last, and notes what both were given."""

    steps: list[Step] = field(default_factory=list)
    metrics: Mapping[str, float] = field(default_factory=dict)
    "Of the whole run, at the step that is being given."

    def update(
        self, step: int, parts: Mapping[str, Mapping[str, float]], events: Sequence[Event] = ()
    ) -> list[Finding]:
        self.steps.append(Step(step=step, metrics=dict(self.metrics), parts=dict(parts), events=list(events)))
        return []


@dataclass(slots=True, kw_only=True)
class _Whole:
    """Stands for the suite of the whole run."""

    tape: _Tape

    def update(self, step: int, metrics: Mapping[str, float], events: Sequence[Event] = ()) -> list[Finding]:
        self.tape.metrics = metrics
        return []
