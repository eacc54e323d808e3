"""Settings and Forensics: their states under AppTest over real segments and the real monitor, then both in Chromium."""

import json
import math
from pathlib import Path

import pytest
import streamlit as st
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import query
from regimescope.monitor.imports.run import Request, import_log
from regimescope.monitor.segments import find_runs
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import context, header
from regimescope.monitor.ui.figures_compare import At, Cell, Line, small_multiples
from regimescope.monitor.ui.two_runs import stretch
from regimescope.monitor.ui.views import rules
from regimescope.monitor.ui.views.forensics import report_html, report_json

REAL = Path(__file__).parents[1] / "data" / "real_logs"
MAIN = Path(header.__file__).parent / "main.py"
ONSET = 30
EVIL = "<img src=x onerror=alert(1)> **bold** :material/alarm:"


def write_sick(recorder, steps=48, **metrics):
    """Length and accuracy fall from step ONSET on."""
    for step in range(steps):
        sick = max(0.0, min(1.0, (step - ONSET) / 8))
        wave = 0.01 * ((step * 7) % 5 - 2)
        values = {
            "accuracy": ((0.6 + wave) * (1 - 0.95 * sick), 256),
            "response_length_mean": ((34 + 40 * wave) * (1 - sick) + 3 * sick, 256),
            "grad_norm": (0.5 + wave) * (1 + 9 * sick),
            "entropy_mean": 0.4 + wave,
            "tokens": 1000.0,
        }
        recorder.step(step, values | metrics)


def write_calm(recorder, steps=48, **metrics):
    for step in range(steps):
        wave = 0.01 * ((step * 7) % 5 - 2)
        values = {
            "accuracy": (0.6 + wave, 256),
            "response_length_mean": (34 + 40 * wave, 256),
            "entropy_mean": 0.4 + wave,
        }
        recorder.step(step, values | metrics)


class Desk:
    """A root, its monitor, and pages over it."""

    def __init__(self, root):
        self.root, self.monitor = root, None

    def known(self):
        with self.monitor.store.cursor() as con:
            return set(query.run_paths(con))

    def open(self, page, **asked):
        """The page after everything there is was read."""
        if self.monitor is None:
            self.monitor = Monitor(self.root, store=Store.in_memory(self.root), actor="ana")
            given = {"read_token": "t", "actor": "ana", "address": "http://127.0.0.1:1"}
            context.install(context.Context(monitor=self.monitor, read_only=False, control_token=None, **given))
        while self.monitor.tick() or set(find_runs(self.root)) - self.known():
            pass
        at = AppTest.from_file(str(MAIN), default_timeout=60)
        at.query_params.update(asked)
        at.user = {}
        at.run()
        at._page_hash = calc_hash(page)
        return at.run()


@pytest.fixture
def desk(tmp_path):
    st.cache_data.clear()
    st.cache_resource.clear()
    found = Desk(tmp_path)
    yield found
    context.install(None)
    if found.monitor is not None:
        found.monitor.stop()


def words(at):
    """All words of the page."""
    assert not at.exception, at.exception
    kinds = (at.text, at.markdown, at.caption, at.subheader, at.warning, at.error, at.info, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def tables(at):
    """Cells of all tables."""
    return [str(cell) for frame in at.dataframe for cell in frame.value.to_numpy().ravel()]


def pick(at, label, value):
    next(box for box in at.selectbox if box.label == label).select(value).run()


def click(at, label):
    next(button for button in at.button if button.label == label).click().run()


# ---- Settings


def test_settings_shows_every_rule_and_where_numbers_of_ones_own_go(desk, record):
    write_calm(record(desk.root / "calm"), 14)
    at = desk.open("settings")
    text, cells = words(at), tables(at)
    assert f"Numbers of your own go into {desk.root / 'rules.toml'}" in text
    assert {"length_collapse", "effect 0.788, evidence 10, for 2", "off, optional"} <= set(cells)
    assert {"http://127.0.0.1:1", str(desk.root), "on, by ana"} <= set(cells)
    assert "all of their lines are read" in text
    assert "No targets: nobody is told" in text


def test_a_changed_threshold_takes_an_alert_away_and_gives_the_lines_that_keep_it(desk, record):
    write_sick(record(desk.root / "sick"))
    at = desk.open("settings", run="sick")
    pick(at, "Rule", "accuracy_floor")
    next(field for field in at.number_input if field.label == "critical: for").set_value(1000).run()
    click(at, "Replay this run")
    assert "1 alert goes, none comes, none moves" in words(at)
    assert "goes away" in tables(at)
    assert '[[rule]]\nname = "accuracy_floor"\ncritical = { for = 1000 }' in words(at)
    assert not (desk.root / "rules.toml").exists(), "the page wrote the file"
    click(at, "Undo all changes")
    assert "1 alert goes" not in words(at) and "[[rule]]" not in words(at)


def test_a_switched_off_rule_is_tried_too_and_a_later_change_asks_for_another_replay(desk, record):
    write_sick(record(desk.root / "sick"))
    at = desk.open("settings", run="sick")
    pick(at, "Rule", "accuracy_floor")
    at.toggle[0].set_value(False).run()
    click(at, "Replay this run")
    assert "1 alert goes" in words(at) and "enabled = false" in words(at)
    next(field for field in at.number_input if field.label == "keep firing").set_value(3).run()
    assert "replay again" in words(at) and "1 alert goes" not in words(at)


def test_a_whole_number_takes_a_fraction_where_it_counts_nothing(desk, record):
    write_calm(record(desk.root / "calm"), 14)
    at = desk.open("settings")
    pick(at, "Rule", "length_collapse")
    fields = {field.label: field for field in at.number_input}
    fields["critical: evidence"].set_value(15.5).run()
    assert "critical = { evidence = 15.5 }" in words(at)
    next(field for field in at.number_input if field.label == "critical: evidence").set_value(12).run()
    assert "critical = { evidence = 12 }" in words(at)
    next(field for field in at.number_input if field.label == "critical: evidence").set_value(10).run()
    assert "[[rule]]" not in words(at)


def test_numbers_that_cannot_be_computed_with_are_said(desk, record):
    write_calm(record(desk.root / "calm"), 14)
    at = desk.open("settings")
    pick(at, "Rule", "exploration_decay")
    next(field for field in at.number_input if field.label == "half life").set_value(0).run()
    click(at, "Replay this run")
    assert "These numbers cannot be used." in words(at)


def test_a_file_of_the_root_is_named_and_one_that_came_later_waits_for_a_start(desk, record):
    write_calm(record(desk.root / "calm"), 14)
    path = desk.root / "rules.toml"
    path.write_text('[[rule]]\nname = "length_collapse"\ncritical = { evidence = 12 }\n')
    at = desk.open("settings")
    assert f"As shipped, with {path} over them" in words(at)
    assert {"by rules.toml", "effect 0.788, evidence 12, for 2"} <= set(tables(at))
    path.write_text("enabled = maybe")
    assert "would not start again" in words(at.run())
    path.write_text("")
    assert "counts from the next start on" in words(at.run())


def test_diagnostics_look_closer_when_asked(desk, record):
    write_calm(record(desk.root / "calm"), 14)
    at = desk.open("settings")
    click(at, "Check disk, clocks and permissions")
    assert any("free of" in cell for cell in tables(at))


# ---- Forensics


def test_one_run_alone_has_its_order_of_changes_and_its_settings(desk, record):
    write_sick(record(desk.root / "sick", config={"update": {"lr": 0.1}}))
    at = desk.open("forensics", run="sick")
    text, cells = words(at), tables(at)
    assert "There is one run below this root" in text and "A: sick, as of step 47" in text
    assert {"Length down", "Accuracy collapse", "alert, critical"} <= set(cells)
    assert {"config.update.lr", "0.1"} <= set(cells)
    assert "Not logged by A: Rep-4, Truncated" in text
    assert len(at.get("plotly_chart")) == 1, "no regimes, so one figure"
    assert at.query_params["a"] == "sick"


def test_two_runs_say_where_they_go_apart_and_what_differs(desk, record):
    write_sick(record(desk.root / "sick", config={"lr": 0.1, "seed": 1}))
    write_calm(record(desk.root / "calm", config={"lr": 0.2, "seed": 1}))
    at = desk.open("forensics", a="sick", b="calm")
    text = words(at)
    assert "A: sick, as of step 47" in text and "B: calm" in text
    assert "A goes away from B first in Accuracy, at step 32: 0.473 against 0.62." in text
    cells = tables(at)
    assert {"config.lr", "0.1", "0.2"} <= set(cells) and "config.seed" not in cells
    assert "Not logged by B: Rep-4, Truncated, Gradient norm" in text


def test_the_axis_falls_back_to_the_step_where_it_cannot_be_had(desk, record):
    write_sick(record(desk.root / "sick"))
    write_calm(record(desk.root / "calm"))
    write_calm(record(desk.root / "calmer"))
    assert "was not logged by every run" in words(desk.open("forensics", a="sick", b="calm", by="tokens"))
    assert "no alert says when anything began" in words(desk.open("forensics", a="calm", b="calmer", by="onset"))
    assert "Only one of the runs has an onset" in words(desk.open("forensics", a="sick", b="calm", by="onset"))
    assert "tokens trained on" not in words(desk.open("forensics", a="sick", by="tokens"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"a": "gone"}, "The first run of this address is not below this root"),
        ({"run": "sick", "b": "../../etc"}, "The second run of this address is not below this root"),
        ({"a": "sick", "b": "sick"}, "compares a run with itself"),
    ],
)
def test_an_address_that_names_nothing_is_said_and_something_is_shown(desk, record, address, said):
    write_sick(record(desk.root / "sick"))
    write_calm(record(desk.root / "calm"))
    text = words(desk.open("forensics", **address))
    assert said in text and "Which change came first" in text


def test_a_run_without_a_step_and_one_without_common_metrics(desk, record):
    record(desk.root / "new").event("note", {})
    write_sick(record(desk.root / "sick"))
    other = record(desk.root / "other")
    for step in range(12):
        other.step(step, {"my_metric": 1.0})
    assert "No step of this run has been seen yet" in words(desk.open("forensics", run="new"))
    assert "No step of the second run" in words(desk.open("forensics", run="sick", b="new"))
    assert "no metric in common" in words(desk.open("forensics", run="sick", b="other"))


def test_values_that_are_not_finite_are_counted(desk, record):
    recorder = record(desk.root / "odd")
    write_calm(recorder, 20)
    for step in range(20, 23):
        recorder.step(step, {"accuracy": (0.6, 256), "grad_norm": math.nan})
    assert "Not finite in A, at the crosses: Gradient norm 3." in words(desk.open("forensics", run="odd"))


def test_a_stretch_that_was_done_twice_is_said(desk, record):
    write_calm(record(desk.root / "twice", launch="a"), 20)
    second = record(desk.root / "twice", launch="b", start="resume", first_step=15)
    for step in range(15, 24):
        second.step(step, {"accuracy": (0.6, 256)})
    assert "Steps 15 to 19 were done twice" in words(desk.open("forensics", run="twice"))


def test_text_of_a_run_is_text(desk, record):
    write_calm(record(desk.root / "calm", name=EVIL, config={EVIL: EVIL}), 14)
    at = desk.open("forensics", run="calm")
    assert EVIL in tables(at)
    kinds = (at.markdown, at.caption, at.warning, at.error, at.info, at.subheader)
    assert not [e.value for kind in kinds for e in kind if EVIL in str(e.value)]


def test_the_download_is_what_check_prints(desk, record):
    write_sick(record(desk.root / "sick"))
    desk.open("forensics", run="sick")
    report = json.loads(report_json(context.current(), "sick"))
    assert report["verdict"] == "critical" and report["run"] == "sick"
    assert report_json(context.current(), "gone") == "{}"


def test_an_imported_log_stands_beside_recorded_runs_and_says_where_its_numbers_come_from(desk, record):
    write_calm(record(desk.root / "calm"))
    import_log(REAL / "trl_trainer_state_1000.json", desk.root, Request())
    at = desk.open("forensics", a="trl_trainer_state_1000", b="calm")
    said = words(at)
    assert "HF trainer_state.json, keys of trl" in said and "which regime drives it" in said
    assert {"truncated_frac", "completions/clipped_ratio", "exact", "diff"} <= set(tables(at))
    report = report_html(context.current(), "trl_trainer_state_1000")
    assert "completions/clipped_ratio" in report and "Nothing that counts was found in 200 steps." in report


def test_settings_waits_while_another_replay_runs(desk, record):
    write_sick(record(desk.root / "sick"))
    at = desk.open("settings", run="sick")
    at.toggle[0].set_value(False).run()
    with rules._BUSY:
        click(at, "Replay this run")
    assert "Another replay is running" in words(at)
    click(at, "Replay this run")
    assert "steps replayed" in words(at)


@pytest.mark.parametrize("command", [("serve",), ("check", "calm")])
def test_rules_that_cannot_be_used_end_a_command_with_one_line(launch, tmp_path, record, command):
    write_calm(record(tmp_path / "calm"), 3)
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "lenght_collapse"\n')
    process = launch(["-m", "regimescope.cli", *command], tmp_path, REGIMESCOPE_PORT="0")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2, out
    assert "did you mean 'length_collapse'" in out and "Traceback" not in out


def test_a_long_run_is_looked_at_around_its_onset_else_at_its_end():
    assert stretch(None, None) == (0, 0) and stretch(7, 19_999) == (0, 19_999)
    assert stretch(None, 99_999) == (80_000, 99_999)
    first, last = stretch(50_000, 99_999)
    assert first < 50_000 < last and last - first == 19_999
    assert stretch(10, 99_999) == (0, 19_999)


def test_the_curves_of_two_runs_share_one_axis():
    lines = tuple(Line(which=which, x=[0, 1], y=[1.0, None], bad=[1]) for which in ("A", "B"))
    cells = [Cell(title=f"m{i}", curves=lines, share=i == 0) for i in range(5)]
    marks = [At(which="A", kind="onset", x=1), At(which="B", kind="bounds", x=2), At(which="A", kind="checkpoint", x=3)]
    figure = small_multiples(cells, marks, theme="dark", x_title="step")
    assert [(line.name, line.line.dash) for line in figure.data] == [("A", "solid"), ("B", "dot")] * 5
    assert [line.showlegend for line in figure.data] == [True, True] + [False] * 8
    names = ["x" if i == 0 else f"x{i + 1}" for i in range(5)]
    followed = {name: figure.layout[name.replace("x", "xaxis")].matches for name in names}
    assert set(followed.values()) == {None, "x5"} and followed["x5"] is None, "a zoom into one is a zoom into all"
    assert [shape.line.dash for shape in figure.layout.shapes] == ["solid", "dash"] * 5
    said = [note.text for note in figure.layout.annotations]
    assert said.count("x") == 10 and said.count("▴") == 5 and "step" in said
    assert figure.layout.yaxis.tickformat == ".2~%" and figure.layout.yaxis2.tickformat is None


# ---- in Chromium


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(tmp_path_factory.mktemp("root") / "runs")


@pytest.fixture
def two_runs(server, record):
    if not (server.root / "sick").exists():
        write_sick(record(server.root / "sick"))
        write_calm(record(server.root / "calm"))
    return server


def test_a_threshold_is_changed_and_the_alert_goes(page, two_runs):
    page.goto(f"{two_runs.address}/settings?run=sick")
    rule = page.get_by_role("combobox", name="Rule")
    rule.fill("accuracy_floor", timeout=40_000)
    page.get_by_role("option", name="accuracy_floor").click()
    expect(page.get_by_text("Accuracy is below a quarter of its best.")).to_be_visible(timeout=20_000)
    field = page.get_by_role("spinbutton", name="critical: for")
    field.fill("1000")
    field.press("Enter")
    page.get_by_role("button", name="Replay this run").click()
    expect(page.get_by_text("1 alert goes")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("critical = { for = 1000 }")).to_be_visible()


def test_a_deep_link_draws_both_curves(page, two_runs):
    page.goto(f"{two_runs.address}/forensics?a=sick&b=calm")
    expect(page.get_by_text("A goes away from B first in")).to_be_visible(timeout=40_000)
    chart = page.locator(".js-plotly-plot").first
    expect(chart).to_be_visible(timeout=40_000)
    page.wait_for_function("() => document.querySelector('.js-plotly-plot').data?.length > 1")
    drawn = chart.evaluate("(el) => el.data.map((line) => [line.name, line.xaxis, line.y.length])")
    assert ["A", "x", 48] in drawn and ["B", "x", 48] in drawn
    assert "run=sick" in page.url
