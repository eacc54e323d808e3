"""One word about a run, and why. The first that applies:
ENDED, UNSEEN, STALE, PAUSED, COLLAPSING, WATCH, WAITING, WARMING UP, HEALTHY.

    verdict(run, monitor.liveness(run.run_key), alerts, (4, 10)).word      # "WARMING UP"

Pure; `open_alerts` is what every page counts. The bounds lint comes from the configuration: it makes no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regimescope.monitor.ui.palette import Tone
from regimescope.monitor.ui.texts import ago, plural, signature_text, span

if TYPE_CHECKING:
    from regimescope.monitor.query import AlertRow, RunRow
    from regimescope.monitor.service import Liveness

LINT = "bounds_lint"
CLOCK = ("telemetry_gap", "dead_run")
"Alerts of the monitor's clock: STALE and ENDED say the same already."
SKEW_S = 300.0
"A clock that is off by more is told, as `regimescope doctor` does."
WAITING_TOO_LONG = 3.0
"Median step times after which waiting for rollouts becomes the verdict."
_ALARMS: Mapping[str, tuple[str, Tone]] = {"critical": ("COLLAPSING", "critical"), "warning": ("WATCH", "watch")}
_LONG = 60
"Letters of a slice that a line of text shows."
_RANK = {"critical": 2, "warning": 1, "info": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict as the header shows it."""

    word: str
    "ENDED, UNSEEN, STALE, PAUSED, COLLAPSING, WATCH, WAITING, WARMING UP or HEALTHY."
    reason: str
    "One line, to be shown as plain text: it may name a slice of the run."
    tone: Tone
    beside: str = ""
    "An open alert that another word hides: COLLAPSING or WATCH; shown next to it."


def open_alerts(alerts: Sequence[AlertRow], last_step: int | None) -> list[AlertRow]:
    """The alerts that count: firing, not inhibited, no lint, not called false, not asleep. Worst first, then oldest."""
    found = [alert for alert in alerts if alert.open and alert.inhibited_by is None]
    found = [alert for alert in found if alert.signature != LINT]
    found = [alert for alert in found if alert.mark != "false_alarm" and not is_snoozed(alert, last_step)]
    return sorted(found, key=lambda alert: (-_RANK.get(alert.severity, 0), alert.step_onset))


def is_snoozed(alert: AlertRow, last_step: int | None) -> bool:
    """Asleep until its step; a critical alert is never asleep."""
    if alert.mark != "snooze" or alert.severity == "critical" or alert.until_step is None:
        return False
    return (-1 if last_step is None else last_step) < alert.until_step


def verdict(
    run: RunRow,
    live: Liveness,
    alerts: Sequence[AlertRow],
    warming: tuple[int, int],
    *,
    degraded: bool = False,
    paused_by: str = "",
) -> Verdict:
    """The verdict of a run. warming: points seen and points needed by the detectors. degraded: the index cannot be
    written, so nothing new of the run is seen, good or bad, and its silence is ours. paused_by: who asked, if known.
    """
    active = open_alerts(alerts, live.last_step)
    alarm = _alarm(active)
    other = _alarm([alert for alert in active if alert.signature not in CLOCK])
    beside = other.word if other else ""
    if live.ended:
        return Verdict(word="ENDED", reason=_ended(run, live), tone="stale", beside=beside)
    if degraded:
        reason = f"nothing after step {_step(live)} is read: store degraded"
        return Verdict(word="UNSEEN", reason=reason, tone="stale", beside=beside)
    if live.stale:
        reason = (
            f"last sign of life {ago(live.silent_s)} ago{_step_time(live)}: it hangs, was killed, or its disk is gone"
        )
        return Verdict(word="STALE", reason=reason, tone="stale", beside=beside)
    if live.state == "paused":
        by = f" by {paused_by}" if paused_by else ""
        reason = f"at step {_step(live)}{by}; it still reads commands"
        return Verdict(word="PAUSED", reason=reason, tone="info", beside=beside)
    if alarm:
        return alarm
    return _quiet(run, live, warming)


def _alarm(active: Sequence[AlertRow]) -> Verdict | None:
    for severity, (word, tone) in _ALARMS.items():
        worst = [alert for alert in active if alert.severity == severity]
        if worst:
            more = f", and {plural(len(active) - 1, 'more alert')}" if len(active) > 1 else ""
            return Verdict(word=word, reason=alert_line(worst[0]) + more, tone=tone)
    return None


def alert_line(alert: AlertRow) -> str:
    """ "length collapse of env=math since step 412, driven by R4"."""
    driver = f", driven by {alert.driver}" if alert.driver else ""
    return f"{signature_text(alert.signature).title.lower()}{of_slice(alert)} since step {alert.step_onset}{driver}"


def of_slice(alert: AlertRow) -> str:
    """ " of env=math", or nothing where the whole run is meant; stands behind the name of an alert."""
    if not alert.slice:
        return ""
    return f" of {alert.slice}" if len(alert.slice) <= _LONG else f" of {alert.slice[:_LONG]}…"


def state_s(run: RunRow, live: Liveness) -> float | None:
    """Seconds in the present state: trainer's clock up to its last line, then ours; None when it never said."""
    if live.state_since is None or run.last_row_at is None:
        return None
    return max(0.0, run.last_row_at - live.state_since) + live.silent_s


def skew_text(run: RunRow, live: Liveness, now: float) -> str:
    """What to know when the trainer's clock is off by minutes; empty when it is not, or nothing has come since we look.

    `now`: unix seconds of this machine. The run's newest line came `silent_s` ago by this clock.
    """
    if run.last_row_at is None or live.ended or live.stale:
        return ""
    off = run.last_row_at - (now - live.silent_s)
    if abs(off) < SKEW_S:
        return ""
    which = "ahead of" if off > 0 else "behind"
    return (
        f"the trainer's clock is {span(abs(off))} {which} this machine's, or the files are copies: "
        "set the clock of its host (NTP). Steps are in order all the same, times of day are not"
    )


def _quiet(run: RunRow, live: Liveness, warming: tuple[int, int]) -> Verdict:
    waited = (state_s(run, live) or 0.0) if live.state == "waiting_rollouts" else 0.0
    if live.median_step_s and waited > WAITING_TOO_LONG * live.median_step_s:
        return Verdict(word="WAITING", reason=f"for rollouts for {span(waited)}{_step_time(live)}", tone="info")
    seen, needed = warming
    if seen < needed:
        return Verdict(word="WARMING UP", reason=f"{seen}/{needed} points; only the guards speak so far", tone="info")
    return Verdict(word="HEALTHY", reason=f"no warning open at step {_step(live)}", tone="ok")


def _ended(run: RunRow, live: Liveness) -> str:
    how = {
        "finished": "finished",
        "stopped": "stopped on request",
        "error": "ended with an error",
        "rollback": "rolled back",
    }
    return f"{how.get(run.end_reason or '', 'no longer writing')} after step {_step(live)}"


def _step(live: Liveness) -> str:
    return "–" if live.last_step is None or live.last_step < 0 else str(live.last_step)  # noqa: RUF001 - a dash for "none yet"


def _step_time(live: Liveness) -> str:
    return f" (step time {span(live.median_step_s)})" if live.median_step_s else ""
