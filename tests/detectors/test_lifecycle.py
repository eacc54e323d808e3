"""inactive -> pending -> firing -> resolved, escalation and grace."""

from regimescope.detectors.lifecycle import QUIET, Lifecycle, Reading, Streak, Streaks


def reading(level, pending=None):
    return Reading(level=level, pending=pending or level, holds=True)


def test_pending_then_firing_then_resolved_then_again_with_the_next_ordinal():
    alert = Lifecycle(keep_firing=2)
    assert alert.update(reading(None, "warning")) is None and alert.pending == "warning"
    assert alert.update(QUIET) is None and alert.pending is None
    assert alert.update(reading("warning")) == "opened" and alert.firing and alert.ordinal == 0
    assert [alert.update(QUIET), alert.update(QUIET)] == [None, "resolved"]
    assert alert.update(reading("info")) == "opened" and alert.ordinal == 1 and alert.severity == "info"


def test_severity_rises_within_one_episode_and_never_falls():
    alert = Lifecycle(keep_firing=5)
    changes = [alert.update(reading(level)) for level in ("info", "critical", "warning", "info")]
    assert changes == ["opened", "escalated", None, None]
    assert alert.severity == "critical" and alert.ordinal == 0


def test_a_condition_that_returns_keeps_the_alert_firing():
    alert = Lifecycle(keep_firing=3)
    alert.update(reading("warning"))
    for _ in range(10):
        assert [alert.update(QUIET), alert.update(QUIET), alert.update(reading(None))] == [None, None, None]
    assert alert.firing


def test_grace_holds_back_all_but_critical():
    alert = Lifecycle(keep_firing=2)
    alert.grace = 2
    assert alert.update(reading("warning")) is None and alert.pending is None
    assert alert.update(reading("critical")) == "opened"


def test_streak_needs_its_points_in_a_row():
    streak = Streak(3)
    assert [streak.update(i, c) for i, c in enumerate([True, True, False, True, True, True])] == [False] * 5 + [True]
    assert streak.since == 3


def test_streaks_give_the_highest_level_that_held_long_enough(rules):
    streaks = Streaks(rules["infra_failed"])
    assert streaks.update(0, "critical") == "critical"
    slow = Streaks(rules["repetition_collapse"])
    assert [slow.update(i, level) for i, level in enumerate(["warning", "critical", "critical", None])] == [
        None, "warning", "critical", None,
    ]  # fmt: skip
