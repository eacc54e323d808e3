"""A run once more under other thresholds: which alerts go, come and move, and nothing of it is kept."""

import dataclasses

import pytest

from regimescope.detectors import RulesError
from regimescope.monitor import query
from regimescope.monitor.thresholds import changed, toml_lines
from regimescope.monitor.what_rules import Found, Trial, changes_of, found_now, summary, try_rules


@pytest.fixture
def tried(collapsed, watch):
    """tried(changes, **options) -> (trial, changes against the alerts as they are)."""
    monitor = watch()
    monitor.catch_up()

    def run(changes, **options):
        with monitor.store.cursor() as con:
            row, alerts = query.run_by_key(con, 1), query.alerts(con, 1)
            rules = changed(monitor.rule_table, changes) if changes else monitor.rules
            trial = try_rules(con, row, rules, limit_s=60, **options)
            assert query.alerts(con, 1) == alerts, "the alerts of the run were touched"
            return trial, changes_of(found_now(alerts), trial)

    return run


def test_the_rules_in_force_find_what_was_found(tried):
    seen = []
    trial, changes = tried({}, on_step=seen.append)
    assert changes and {c.kind for c in changes} == {"stays"}
    assert (trial.complete, trial.last, seen[-1]) == (True, 39, 39)
    assert summary(changes, trial).startswith(f"Nothing changes: {len(changes)} alerts with the same")


def test_a_rule_that_is_switched_off_finds_nothing(tried):
    _, changes = tried({("accuracy_floor", "enabled"): False})
    gone = [c for c in changes if c.kind == "goes"]
    assert [c.now.rule for c in gone] == ["accuracy_floor"] and gone[0].then is None
    assert changes[0].kind == "goes", "what goes stands first"


def test_a_stricter_rule_speaks_later(tried):
    _, changes = tried({("accuracy_floor", "critical.for"): 8})
    (moved,) = (c for c in changes if c.kind == "moves")
    assert moved.now.rule == moved.then.rule == "accuracy_floor"
    assert moved.then.detected == moved.now.detected + 5


def test_an_optional_rule_that_is_switched_on_may_speak(tried):
    lines = {("reward_stall", "enabled"): True, ("reward_stall", "span"): 10, ("reward_stall", "info.for"): 1}
    _, changes = tried(lines)
    assert "reward_stall" in [c.then.rule for c in changes if c.kind == "comes"]


def test_numbers_that_cannot_be_computed_with_are_refused(tried):
    with pytest.raises(RulesError, match="cannot be computed"):
        tried({("exploration_decay", "half_life"): 0})


def test_a_replay_that_had_no_time_says_how_far_it_came():
    base = dict.fromkeys(("rule", "signature"), "x") | {"slice": None, "launch_no": 0, "severity": "info"}
    early = Found(**base, onset=3, detected=5, last=9, explained=False)
    late = dataclasses.replace(early, onset=50, detected=55, last=60)
    trial = Trial(found=(early,), steps=21, launch_no=0, last=20, complete=False)
    changes = changes_of([early, late], trial)
    assert [c.kind for c in changes] == ["stays"], "what it did not see is no loss"
    assert "over at step 20" in summary(changes, trial)


def test_two_episodes_of_one_rule_are_told_apart():
    base = dict.fromkeys(("rule", "signature"), "x") | {"slice": None, "launch_no": 0, "severity": "info"}
    first = Found(**base, onset=3, detected=5, last=9, explained=False)
    second = dataclasses.replace(first, onset=103, detected=105, last=109)
    other = dataclasses.replace(second, slice="env=math")
    trial = Trial(found=(second,), steps=200, launch_no=0, last=199, complete=True)
    found = [
        (c.kind, (c.now or c.then).onset, (c.now or c.then).slice) for c in changes_of([first, second, other], trial)
    ]
    assert found == [("goes", 3, None), ("goes", 103, "env=math"), ("stays", 103, None)]
    assert summary(changes_of([first], trial), trial).startswith("1 alert goes, 1 comes, none moves, none stays.")


def test_a_monitor_started_over_the_lines_finds_the_same_as_the_trial(tried, collapsed, root, watch):
    change = {("accuracy_floor", "critical.for"): 8}
    trial, _ = tried(change)
    (root / "rules.toml").write_text(toml_lines(change))
    again = watch()
    again.catch_up()
    with again.store.cursor() as con:
        found = found_now(query.alerts(con, 1))
    assert sorted(found, key=str) == sorted(trial.found, key=str)


def test_what_a_later_launch_did_again_does_not_count(trainer, watch):
    with trainer.open(launch="a") as recorder:
        for step in range(30):
            trainer.step(recorder, step, **trainer.collapsing(step))
    with trainer.open(launch="b", start="resume", first_step=15) as recorder:
        for step in range(15, 40):
            trainer.step(recorder, step)
    monitor = watch()
    monitor.catch_up()
    with monitor.store.cursor() as con:
        trial = try_rules(con, query.run_by_key(con, 1), monitor.rules, limit_s=60)
        alerts = query.alerts(con, 1)
    assert [a for a in alerts if a.superseded and a.signature == "length_collapse"]
    assert not [f for f in trial.found if f.signature == "length_collapse"]
    assert {c.kind for c in changes_of(found_now(alerts), trial)} <= {"stays"}
