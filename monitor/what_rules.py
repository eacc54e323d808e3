"""Which alerts would a run have had with other thresholds: its stored steps once more through the detectors, in suites
of their own.

    trial = try_rules(con, run, rules, limit_s=30, on_step=progress)
    for change in changes_of(found_now(query.alerts(con, run.run_key)), trial): ...

The live replay and the alert table stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from regimescope.detectors import Rules, RulesError
from regimescope.monitor.alerts import GAP_RULE
from regimescope.monitor.query import AlertRow, Connection, RunRow
from regimescope.monitor.replay import RunReplay, replaying
from regimescope.monitor.timeline import read_launches

NEAR = 30
"Steps between two onsets of one rule that still make the same alert; farther apart they must overlap."
_ORDER = {"goes": 0, "comes": 1, "moves": 2, "stays": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One alert, as far as it is compared."""

    rule: str
    signature: str
    slice: str | None
    launch_no: int
    severity: str
    onset: int
    detected: int
    last: int
    explained: bool
    "By another alert: shown dimmed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What other rules found."""

    found: tuple[Found, ...]
    steps: int
    "Steps that were given, each launch anew."
    launch_no: int
    last: int
    "Last step of that launch that was given; -1 = none."
    complete: bool
    "False: the time was over before the steps were."


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One alert under both."""

    kind: Literal["goes", "comes", "moves", "stays"]
    now: Found | None
    then: Found | None


def try_rules(
    con: Connection, run: RunRow, rules: Rules, *, limit_s: float, on_step: Callable[[int], None] = lambda step: None
) -> Trial:
    """Replay a run under other rules. `on_step` is told the last step from time to time. Raises RulesError where the
    numbers cannot be computed with, duckdb.Error.
    """
    launches = read_launches(con, run.run_key)
    if not launches:
        return Trial(found=(), steps=0, launch_no=-1, last=-1, complete=True)
    deadline, before, steps = time.monotonic() + limit_s, -1, 0
    replay: RunReplay | None = None
    complete = True
    try:
        for replay in replaying(con, run.run_key, run.path, launches, rules):
            last = replay.current.last
            steps += max(0, last - before)
            before = last
            on_step(last)
            if time.monotonic() > deadline:
                complete = last >= (run.last_step or 0) and replay.current.launch is launches[-1]
                break
    except (ArithmeticError, ValueError, IndexError) as error:
        raise RulesError(f"with these numbers the rules cannot be computed: {error}") from None
    assert replay is not None  # it comes at least once
    return Trial(
        found=tuple(_of_replay(replay)),
        steps=steps,
        launch_no=replay.current.launch.launch_no,
        last=replay.current.last,
        complete=complete,
    )


def _of_replay(replay: RunReplay) -> Iterable[Found]:
    episodes = {**replay.episodes, **dict(replay.current.episodes(replay.path))}
    until = {launch.launch_no: launch.superseded_from for launch in replay.launches}
    for (launch_no, rule, part, _), episode in episodes.items():
        f, end = episode.finding, until[launch_no]
        if end is None or f.step_detected < end:
            yield Found(
                rule=rule, signature=f.signature, slice=None if part is None else f"env={part}", launch_no=launch_no,
                severity=f.severity, onset=f.step_onset, detected=f.step_detected, last=f.step_last,
                explained=f.inhibited_by is not None,
            )  # fmt: skip


def found_now(alerts: Iterable[AlertRow]) -> list[Found]:
    """The alerts of a run that count and that the detectors made, in the same form."""
    return [
        Found(
            rule=a.rule, signature=a.signature, slice=a.slice, launch_no=a.launch_no, severity=a.severity,
            onset=a.step_onset, detected=a.step_detected, last=a.step_last, explained=a.inhibited_by is not None,
        )
        for a in alerts
        if not a.superseded and a.rule != GAP_RULE and a.state != "pending"
    ]  # fmt: skip


def changes_of(now: Sequence[Found], trial: Trial) -> list[Change]:
    """What goes, comes, moves and stays, in that order, each by onset; of what the trial had time to see."""
    seen = [f for f in now if (f.launch_no, f.detected) <= (trial.launch_no, trial.last)]
    left, changes = list(trial.found), list[Change]()
    for found in sorted(seen, key=lambda f: (f.onset, f.detected)):
        other = _partner(found, left)
        if other is not None:
            left.remove(other)
        changes.append(Change(kind=_kind(found, other), now=found, then=other))
    changes += [Change(kind="comes", now=None, then=f) for f in left]
    return sorted(changes, key=lambda c: (_ORDER[c.kind], (c.then or c.now).onset))  # type: ignore[union-attr]


def _partner(found: Found, others: Sequence[Found]) -> Found | None:
    """The same episode under other numbers: of the same rule, launch and slice, overlapping or near; the nearest."""
    near = [
        f
        for f in others
        if (f.rule, f.launch_no, f.slice) == (found.rule, found.launch_no, found.slice)
        and (abs(f.onset - found.onset) <= NEAR or (f.onset <= found.last and found.onset <= f.last))
    ]
    return min(near, key=lambda f: abs(f.detected - found.detected), default=None)


def _kind(now: Found, then: Found | None) -> Literal["goes", "moves", "stays"]:
    if then is None:
        return "goes"
    same = (now.severity, now.onset, now.detected) == (then.severity, then.onset, then.detected)
    return "stays" if same else "moves"


def summary(changes: Sequence[Change], trial: Trial) -> str:
    """ "1 alert goes, none comes, 2 move, 3 stay; 449 steps replayed"."""
    count = {kind: sum(c.kind == kind for c in changes) for kind in _ORDER}
    if not changes:
        text = "No alert now, and none with these numbers"
    elif count["stays"] == len(changes):
        alerts = f"{len(changes)} alert{'' if len(changes) == 1 else 's'}"
        text = f"Nothing changes: {alerts} with the same onset, detection and severity"
    else:
        goes, comes, moves, stays = count.values()
        text = ", ".join(
            (
                f"{goes} alerts go" if goes > 1 else f"{goes or 'No'} alert goes",
                f"{comes or 'none'} {'come' if comes > 1 else 'comes'}",
                f"{moves or 'none'} {'move' if moves > 1 else 'moves'}",
                f"{stays or 'none'} {'stay' if stays > 1 else 'stays'}",
            )
        )
    end = "" if trial.complete else f" The time was over at step {trial.last:,}: later alerts are not compared."
    return f"{text}. {trial.steps:,} steps replayed.{end}"
