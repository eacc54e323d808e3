"""Reports and comparisons: what they say of a run that failed and of one that did not, and that nothing of a run is
markup in them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.cli import main
from regimescope.monitor import Recorder
from regimescope.monitor.report.charts import Chart, Line, svg, ticks
from regimescope.monitor.report.markdown import fenced, plain

REAL = Path(__file__).parents[1] / "data" / "real_logs"
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
NAMED = '<img src=x onerror="alert(1)">'
VOID = {"meta", "img", "br", "link"}


class Markup(HTMLParser):
    """Tags, their attributes, and whether they nest."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def record(folder, *, collapses, name=None, config=None):
    """A run of 60 steps whose responses shrink to nothing from step 30 on, or do not."""
    with Recorder(folder, name=name, config=config or {}) as recorder:
        for step in range(60):
            gone = collapses and step >= 30
            recorder.step(
                step,
                {
                    "accuracy": (0.02 if gone else 0.6 + 0.01 * (step % 3), 256),
                    "response_length_mean": (max(2.0, 200.0 * 0.6 ** (step - 29)) if gone else 200.0 + step % 5, 256),
                    "entropy_mean": 0.4 + 0.01 * (step % 4),
                    "grad_norm": 1.0 + 0.1 * (step % 3),
                    "step_seconds": 120.0,
                    HOSTILE: 1.0,
                },
            )
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    record(root / NAMED, collapses=True, name=HOSTILE)
    record(root / "dying", collapses=True, name=HOSTILE, config={"lr": HOSTILE, "seed": 1})
    record(root / "well", collapses=False, config={"lr": "1e-6", "seed": 1})
    return root


def test_a_report_says_what_happened_when_and_how_long_it_went_on(runs, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(runs / "dying"), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert re.match(r"Critical: length collapse since step (29|30|31) \(detected at step \d+\)", said)
    assert "after that" in said
    text = out.read_text()
    assert "What moved first" in text and "Length down" in text and "polyline" in text
    assert "No regime can be named from this log" not in text or "Recorder.buckets" in text


def test_a_report_opens_from_disk_and_holds_no_markup_of_the_run(runs, tmp_path):
    out = tmp_path / "report.html"
    main(["report", str(runs / NAMED), "-o", str(out)])
    main(["compare", str(runs / NAMED), str(runs / "dying"), "-o", str(tmp_path / "compare.html")])
    for file in (out, tmp_path / "compare.html"):
        text, markup = file.read_text(), Markup()
        markup.feed(text)
        assert markup.open == [] and not {"script", "img", "iframe", "link"} & set(markup.tags)
        assert not [a for a in markup.attributes if a[1] in ("src", "href") or a[1].startswith("on")]
        assert "default-src 'none'" in text and "http" not in re.sub(r"http-equiv", "", text)
        assert file.stat().st_size < 3_000_000


def test_the_three_forms_say_the_same(runs, tmp_path):
    for ending in ("html", "md", "json"):
        assert main(["report", str(runs / "dying"), "-o", str(tmp_path / f"r.{ending}")]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    verdict = found["verdict"]
    assert verdict in (tmp_path / "r.html").read_text()
    assert plain(verdict) in (tmp_path / "r.md").read_text()
    assert found["report"]["verdict"] == "critical" and found["hours"] == pytest.approx(
        120 / 3600 * (59 - found["report"]["alerts"][0]["step_onset"])
    )


def test_a_report_on_a_public_log_names_the_source_of_its_numbers_and_what_is_missing(tmp_path):
    out = tmp_path / "r.html"
    assert main(["report", str(REAL / "trl_trainer_state_1000.json"), "-o", str(out)]) == 0
    text = out.read_text()
    assert "completions/clipped_ratio" in text and "Recorder.buckets" in text
    assert "Nothing that counts was found in 200 steps." in text


@pytest.mark.parametrize(("out", "reason"), [("r.pdf", "ending says the form"), ("no/r.html", "no folder")])
def test_where_it_cannot_be_written_is_said_before_anything_is_read(out, reason, tmp_path, capsys):
    assert main(["report", str(tmp_path / "none"), "-o", str(tmp_path / out)]) == 2
    assert reason in capsys.readouterr().err


def test_two_runs_are_compared_where_they_go_apart(runs, tmp_path, capsys):
    assert main(["compare", str(runs / "dying"), str(runs / "well")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"go apart first in (accuracy|response_length_mean), at step (29|30|31|32)", said)
    assert "config.lr" in said and "config.seed" not in said
    assert main(["compare", str(runs / "well"), str(runs / "well"), "-o", str(tmp_path / "c.json")]) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["apart"] == [] and found["settings"] == []


def test_a_run_and_a_log_are_compared_too(runs, capsys):
    assert main(["compare", str(runs / "well"), str(REAL / "trl_console.log"), "--by", "onset"]) == 0
    assert "B trl_console.log" in capsys.readouterr().out


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_inside(low, wide):
    found = ticks(low, low + wide)
    assert 1 <= len(found) <= 6
    assert all(low - 1e-6 * wide <= tick <= low + wide + 1e-6 * wide for tick in found)


def test_what_is_not_finite_leaves_a_gap():
    line = Line(label="a", color="info", x=range(6), y=[1.0, 2.0, float("nan"), 2.0, 1.0, float("inf")])
    assert svg(Chart(title="a", lines=[line])).count("<polyline") == 2


@given(
    st.lists(st.one_of(st.floats(-1e9, 1e9), st.sampled_from([float("nan"), float("inf")])), min_size=1, max_size=30)
)
def test_any_curve_can_be_drawn(values):
    drawn = svg(Chart(title="<b>", lines=[Line(label="<i>", color="info", x=range(len(values)), y=values)]))
    assert "nan" not in re.sub(r'aria-label="[^"]*"', "", drawn).lower() and "<b>" not in drawn


@given(st.text())
def test_no_text_breaks_out_of_its_block_of_code(text):
    block = fenced(text).split("\n")
    assert block[0] == f"{block[-1]}text" and block[-1] not in block[1:-1]
