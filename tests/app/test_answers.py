"""The five answers as data: what each says of given numbers, and that missing ones are named."""

import math

import pytest

from regimescope.monitor import Recorder
from regimescope.monitor.query import CommandRow, EventRow, Latest, SegmentRow, SliceRow
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import answers
from regimescope.monitor.ui.answers import Evaluations
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.facts import Proposal, load_facts, shown_checkpoints
from regimescope.monitor.ui.views.panels import PANELS as GRID
from regimescope.monitor.ui.views.panels import TILES, available, missing


def at(value: float, before: float | None = None, step: int = 100) -> Latest:
    return Latest(step=step, value=value, before=before)


def checkpoint(step: int) -> EventRow:
    return EventRow(kind="checkpoint", step=step, t=None, data={})


class Onset:
    """The fields of an alert that the way back looks at. `back`: the checkpoint of a remedy that only goes back."""

    def __init__(self, step_onset: int, severity: str = "critical", back: int | None = -1) -> None:
        self.step_onset, self.severity = step_onset, severity
        self.remedy, self.evidence = ({}, {}) if back == -1 else ({"checkpoint": back}, {"window": "closed"})


@pytest.mark.parametrize(
    ("steps", "alerts", "text"),
    [
        ([], [Onset(10)], ""),
        ([0, 40, 80], [], "last checkpoint: step 80"),
        ([0, 40, 80], [Onset(62)], "last good checkpoint: step 40"),
        ([0, 40, 80], [Onset(90), Onset(40)], "last good checkpoint: step 0"),
        ([40], [Onset(40)], "no checkpoint before the onset"),
        ([40], [Onset(10, "info")], "last checkpoint: step 40"),
        ([0, 40, 80], [Onset(62, back=0)], "last good checkpoint: step 0"),
        ([0, 40, 80], [Onset(62, back=None)], "no checkpoint before the onset"),
    ],
)
def test_the_way_back_is_the_newest_checkpoint_before_the_earliest_onset(steps, alerts, text):
    assert answers.last_good_checkpoint([checkpoint(step) for step in steps], alerts) == text


def test_the_worst_environment_comes_first():
    rows = {
        name: SliceRow(slice_id=i, kind="env", value=name) for i, name in enumerate(("fell", "rose", "new", "empty"))
    }
    envs = [(rows["rose"], at(0.6, 0.5)), (rows["empty"], None), (rows["new"], at(0.3)), (rows["fell"], at(0.2, 0.6))]
    assert [row.value for row, _ in answers.worst_first(envs)] == ["fell", "rose", "new", "empty"]
    assert answers.where(envs).tone == "watch"
    assert "1 of 4" in answers.where(envs).text


def test_without_environments_it_says_how_to_split():
    assert 'slice=("env", NAME)' in answers.where([]).text


@pytest.mark.parametrize(
    ("source", "latest", "text"),
    [
        ("proximal", {}, "clip signals inert"),
        ("infer", {}, "buckets noisy"),
        (None, {}, "not known"),
        ("behaviour", {"lag_max": at(0.0), "updates": at(1.0)}, "on-policy"),
        ("behaviour", {"lag_max": at(0.0), "updates": at(16.0)}, "ratio source behaviour"),
        ("behaviour", {"lag_max": at(2.0), "updates": at(1.0)}, "ratio source behaviour"),
    ],
)
def test_what_the_ratio_means(source, latest, text):
    assert text in answers.ratio_note(source, latest)


def evaluations(*values):
    found = Evaluations()
    for i, value in enumerate(values):
        found = found.add(40 * i, value)
    return found


def test_held_out_beside_training_with_the_gap_and_its_best():
    latest = {"accuracy": at(0.62), "eval.accuracy": at(0.5, 0.55, step=120)}
    answer = answers.held_out(latest, evaluations(0.52, 0.58, 0.55, 0.5))
    assert answer.text == (
        "eval.accuracy 50 % at step 120 · training accuracy 62 % · gap +12 points"
        " · best 58 % at step 40 · 4 evaluations"
    )
    assert answer.tone == "ok"
    best_now = answers.held_out({"eval.accuracy": at(0.6, step=40)}, evaluations(0.5, 0.6))
    assert best_now.text == "eval.accuracy 60 % at step 40 · 2 evaluations"
    assert "log eval.accuracy" in answers.held_out({"accuracy": at(0.62)}, Evaluations()).text


@pytest.mark.parametrize(
    ("value", "best", "tone"),
    [
        (0.58, 0.58, "ok"),
        (0.49, 0.58, "ok"),
        (0.47, 0.58, "watch"),
        (0.28, 0.58, "critical"),
        (0.0, 0.58, "critical"),
        (0.05, 0.06, "ok"),
        (0.04, 0.06, "watch"),
        (0.0, 0.0, "ok"),
        (math.nan, 0.58, "critical"),
    ],
)
def test_held_out_is_ok_only_near_its_best(value, best, tone):
    assert answers.held_out_tone(value, best) == tone


def test_the_best_evaluation_is_the_first_finite_maximum():
    found = evaluations(math.nan, 0.4, 0.4, 0.1)
    assert (found.count, found.best, found.best_step) == (4, 0.4, 40)


def asked(step):
    return EventRow(kind="checkpoint", step=step, t=None, data={"asked_for": True})


@pytest.mark.parametrize(
    ("found", "alerts", "steps"),
    [
        ([], [], []),
        ([checkpoint(step) for step in range(500)], [], [499]),
        ([checkpoint(step) for step in range(500)], [Onset(62)], [61]),
        ([checkpoint(3), asked(7), checkpoint(9)], [Onset(5)], [3, 7]),
        ([asked(step) for step in range(40)], [Onset(0)], list(range(31, 40))),
    ],
)
def test_charts_mark_the_last_good_checkpoint_and_those_asked_for(found, alerts, steps):
    assert shown_checkpoints(found, alerts) == steps


def test_what_was_lost_is_said():
    rows = [
        SegmentRow(segment="a", byte_offset=1, lost=12, bad_lines=0),
        SegmentRow(segment="b", byte_offset=1, lost=0, bad_lines=1),
    ]
    assert answers.lost_records(rows) == "12 records lost, 1 line not readable"
    assert answers.lost_records([]) == ""


def test_the_last_command_names_its_author_and_step():
    command = CommandRow(
        command_id="i",
        launch_id="l",
        kind="set_bounds",
        args={},
        expect=0,
        issued_at=0.0,
        not_after=1.0,
        by="ana",
        why="x",
        alert_id=None,
        status="applied",
        ranks=1,
        applied_ranks=1,
        applied_step=447,
        revision=1,
        applied=None,
        message=None,
    )
    assert answers.last_command([command]) == "last command: set_bounds by ana, applied at step 447"


def test_a_move_is_old_to_new():
    assert answers.move(Proposal(bound="neg.w_min", old=1.0, new=0.0, alert_id="a")) == "move w_min of A<0: 1 → 0"
    assert answers.move(None) == "no bound is proposed"


def test_panels_without_their_field_are_off_and_name_it():
    names = {"accuracy", "response_length_p10", "response_length_p90", "R4.clip_low_frac"}
    assert [panel.title for panel in available(names)] == ["Accuracy and reward", "Clipped share of each regime"]
    off = dict(missing(names))
    assert off["Response length: median, p10 to p90"] == ["response_length_p50"]
    assert off["Tokens by bucket"] == ["buckets"]
    assert len(off) + 2 == len(GRID)


def test_a_tile_says_its_change_in_points_or_units_and_nothing_when_there_is_none():
    accuracy = next(tile for tile in TILES if tile.name == "accuracy")
    length = next(tile for tile in TILES if tile.name == "response_length_mean")
    assert (accuracy.show(0.058), accuracy.change(0.058, 0.62)) == ("5.8 %", "-56.2 pt")
    assert (length.show(3.21), length.change(3.21, 34.0)) == ("3.21", "-30.8")
    assert accuracy.change(0.5, 0.5001) is None


def test_two_writers_and_files_that_are_not_read_are_told_with_the_first_answer(tmp_path):
    with Recorder(tmp_path / "run", launch="a") as first, Recorder(tmp_path / "run", launch="a") as second:
        for recorder in (first, second):
            recorder.step(0, {"accuracy": 0.5})
    (tmp_path / "run" / "segments" / "r00001-1-1-0000.jsonl").symlink_to(first.path)
    monitor = Monitor(tmp_path, store=Store.in_memory(tmp_path))
    monitor.catch_up()
    context = Context(
        monitor=monitor, read_token="", read_only=True, actor="ana", control_token=None, address="http://127.0.0.1"
    )
    facts = load_facts(context, "run")
    monitor.stop()
    assert facts is not None
    repeated, unread = answers.alive(facts, facts.segments).notes
    assert repeated.startswith(f"launch 'a' has rank 0 twice: {first.path.name} and {second.path.name}: ")
    assert unread.startswith("run/segments/r00001-1-1-0000.jsonl: a link, which is not followed; ")
