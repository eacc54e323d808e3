"""What an alert's card says of false alarms is what the scorecard counted."""

import importlib
from pathlib import Path

import pytest

from regimescope.monitor.ui import false_alarms

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def scorecard(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY))
    return lambda name: importlib.import_module(f"benchmarks.scorecard.{name}")


def test_the_data_file_is_that_of_the_scorecard(scorecard):
    written = scorecard("false_alarms")
    page = (REPOSITORY / "docs" / "scorecard.md").read_text("utf-8")
    assert written.TARGET.read_text("utf-8") == written.toml_of(page)


def test_counts_bounds_and_kinds_stand_apart():
    by_name = {found.name: found for found in false_alarms.measured()}
    assert {found.kind for found in by_name.values()} == {"real", "generated"}
    page = (REPOSITORY / "docs" / "scorecard.md").read_text("utf-8")
    lines = false_alarms.lines("exploration_decay")
    assert [line.split(",")[0].split(":")[0] for line in lines] == ["Real runs", "Generated runs"]
    for line in lines:
        steps = line.split(" in ")[1].split(" healthy steps")[0]
        assert f"in {steps} rows" in page


def test_a_data_set_without_the_metric_says_nothing_about_its_rule():
    lines = false_alarms.lines("repetition_collapse")
    assert lines and not [line for line in lines if "public logs" in line]
    assert [line for line in false_alarms.lines("length_collapse") if "public logs" in line]
    assert false_alarms.lines("bounds_lint") == []


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_the_bound_is_that_of_the_scorecard(scorecard, count):
    expected = scorecard("score").poisson_upper(count)
    assert false_alarms.upper_bound(count) == pytest.approx(expected, rel=1e-6)
