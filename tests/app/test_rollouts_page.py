"""The Rollouts page under AppTest: what the address asks for, what each state says, and the rollouts of an alert. The
token viewer is opaque here: test_rollouts_browser.py looks at it.
"""

import json
import math
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import Rollout, RolloutOptions, query
from regimescope.monitor.query import RolloutFacets
from regimescope.monitor.repeats import Loop
from regimescope.monitor.rollout_picks import rollouts_of_alert
from regimescope.monitor.rollout_reader import rollout_tokens
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.token_view import token_view
from regimescope.monitor.ui import context, header, tokens
from regimescope.monitor.ui.rollout_asked import asked, parse_number, parse_range
from regimescope.monitor.ui.rollout_texts import excerpt, kept_id, loop_text, parse_id
from regimescope.monitor.ui.session import OF_A_RUN

MAIN = Path(header.__file__).parent / "main.py"
FACETS = RolloutFacets(count=9, steps=(0, 10, 40), envs=("code", "math"), finish_reasons=("eos",), longest=64)


def response(number, step, **changes):
    """Of prompt number // 3; the higher the number the better."""
    given = {
        "sample_id": number, "length": 3, "group_id": number // 3, "env": "math" if number % 2 else "code",
        "prompt": f"{step}+{number}=", "response": f"answer {number}", "reward": number / 5 - 1,
        "advantage": number / 5 - 1, "correct": number > 4, "finish_reason": "eos", "repetition": (number % 4) / 4,
        "token_ids": [number, 7, 1], "tokens": ["<b>", "\n", "<eos>"], "logp_old": [-1.0, -1.0, math.nan],
        "logp_new": [-1.0, -0.5, -math.inf], "weight": [1.0, 1.5, 1.0], "bucket": [4, 0, 6],
        "entropy": [math.inf, 0.5, 0.1],
    }  # fmt: skip
    return Rollout(**given | changes)


class Page:
    """A root with runs, and the pages over it."""

    def __init__(self, root, record, write_step):
        self.root, self._record, self._write_step = root, record, write_step
        self.monitor = Monitor(root, store=Store.in_memory(root), actor="ana")
        context.install(
            context.Context(
                monitor=self.monitor, read_only=False, control_token=None, read_token="t", actor="ana", address="x"
            )
        )

    def run(self, name="demo", steps=3, rows=10, **options):
        given = {"rollouts": RolloutOptions(every=1, limit=64)} if rows else {}
        recorder = self._record(self.root / name, **given | options)
        for step in range(steps):
            if rows:
                recorder.rollouts(step, [response(i, step) for i in range(rows)], update=0)
            self._write_step(recorder, step)
        self.catch_up()
        return recorder

    def catch_up(self):
        while self.monitor.tick():
            pass

    def open(self, **query_params):
        at = AppTest.from_file(str(MAIN), default_timeout=30)
        at.query_params.update(query_params)
        at.user = {}
        at.run()
        at._page_hash = calc_hash("rollouts")
        return at.run()


@pytest.fixture
def pages(tmp_path, record, write_step):
    st.cache_data.clear()
    found = Page(tmp_path, record, write_step)
    yield found
    context.install(None)
    found.monitor.stop()


def words(at):
    assert not at.exception, at.exception
    kinds = ("subheader", "markdown", "caption", "text", "code", "warning")
    return "\n".join(str(e.value) for kind in kinds for e in getattr(at, kind))


# -- what the address asks for --


def test_an_address_without_filters_asks_for_everything():
    found = asked({}, FACETS)
    assert found.filter == query.RolloutFilter(steps=(0, 40), max_length=64)
    assert (found.order, found.looks_into_files) == ("-step", False)


def test_filters_of_an_address():
    params = {"steps": "5-20", "env": "math", "verdict": "wrong", "sign": "neg", "end": "eos", "pick": "best",
              "len": "3-9", "rep": "0.25", "clipped": "1", "text": "<b>", "sort": "repetition"}  # fmt: skip
    found = asked(params, FACETS)
    assert found.filter == query.RolloutFilter(
        steps=(5, 20), env="math", correct=False, sign=-1, finish_reason="eos", pick="best", min_length=3,
        max_length=9, min_repetition=0.25,
    )  # fmt: skip
    assert (found.text, found.clipped, found.order, found.looks_into_files) == ("<b>", True, "-repetition", True)
    assert asked({"verdict": "none"}, FACETS).filter.judged is False


def test_what_makes_no_sense_is_as_if_it_were_not_there():
    junk = {"steps": "9-x", "env": "x' OR true", "verdict": "maybe", "sign": "7", "end": "x", "pick": "", "len": "9-1",
            "rep": "nan", "clipped": "yes", "sort": "file; DROP TABLE run"}  # fmt: skip
    assert asked(junk, FACETS) == asked({}, FACETS)
    assert len(asked({"text": "x" * 5000}, FACETS).text) == 200


def test_a_step_alone_is_a_filter_and_with_an_id_a_rollout():
    assert asked({"step": "10"}, FACETS).steps == (10, 10)
    assert asked({"step": "10", "id": "3"}, FACETS).steps == (0, 40)


@pytest.mark.parametrize("text", ["", "5", "-5", "5-", "9-5", "50-60", "٣-٤", "1-" + "9" * 40])
def test_a_range_that_is_none_is_everything(text):
    assert parse_range(text, 0, 40) == (0, 40)


@pytest.mark.parametrize(
    ("text", "place"), [("12", (0, 12)), ("3-12", (3, 12)), ("-1", (0, 1)), ("", None), ("x", None), ("1-x", None),
                        ("../x", None), ("9" * 30, None), ("٣", None)],
)  # fmt: skip
def test_an_id_is_a_number_with_its_rank(text, place):
    assert parse_id(text) == place


def test_numbers_of_an_address():
    assert (parse_number("17"), parse_number("-1"), parse_number("x"), parse_number(None)) == (17, None, None, None)


def test_an_excerpt_is_one_line_without_control_characters():
    assert excerpt("a\nb\tc\x1b[31m\u202ed") == "a⏎b⇥c\\x1b[31m\\u202ed"
    assert excerpt(None) == "no text recorded" and excerpt("x" * 200) == "x" * 120 + "…"


def test_the_filters_of_another_run_are_forgotten():
    assert {"step", "id", "tok", "steps", "env", "len", "end"} <= set(OF_A_RUN)


# -- the viewer's data --


def test_the_data_of_the_viewer_is_json_whatever_was_recorded(pages):
    pages.run(steps=1, rows=1)
    with pages.monitor.store.cursor() as con:
        (row,) = query.rollouts(con, 1)
    found = rollout_tokens(pages.root / "demo", row)
    seen = token_view(row, found, rule=None, bounds=None)
    sent = tokens.wire(seen, rev="r", place={"step": "0", "id": "0"}, tok=7, color="x")
    assert json.loads(json.dumps(sent, allow_nan=False)) == sent
    assert sent["old"] == [-1.0, -1.0, "NaN"] and sent["new"] == [-1.0, -0.5, "-Infinity"]
    assert sent["entropy"] == ["Infinity", 0.5, 0.1] and sent["bucket"] == "406"
    assert (sent["tok"], sent["color"], sent["bounds"]) == (None, "ratio", "not known")


def test_the_script_is_small_no_path_and_tells_python_nothing():
    script = tokens.script()
    assert len(script.encode()) < 10 * 1024
    assert "\n" in script and "setStateValue" not in script and "setTriggerValue" not in script


# -- states --


def test_a_run_without_rollouts_says_what_to_log(pages):
    pages.run(rows=0)
    said = words(pages.open(run="demo"))
    assert "No rollout so far" in said and "recorder.rollouts(step, [Rollout(" in said


def test_a_run_that_will_keep_rollouts_waits(pages):
    recorder = pages.run(rows=0, rollouts=RolloutOptions(every=100))
    assert recorder
    assert "those of its first sampled step appear here" in words(pages.open(run="demo"))


def test_the_page_lists_and_opens_the_worst(pages):
    pages.run()
    at = pages.open(run="demo")
    said = words(at)
    assert "30 rollouts" in said and "Five worst, by reward" in said and "Step 2, no. 0" in said
    assert "answer 0" in said and "answer 9" in said
    assert len(at.dataframe[0].value) == 30
    assert "3 responses kept of this prompt" in said and "No. 1" in "".join(link.label for link in at.get("page_link"))


def test_filters_of_the_address_reach_table_and_widgets(pages):
    pages.run()
    at = pages.open(run="demo", steps="1-2", env="math", verdict="wrong", sort="high")
    assert "4 rollouts" in words(at)
    found = at.dataframe[0].value
    assert list(found["step"]) == [2, 1, 2, 1] and list(found["no."]) == ["3", "3", "1", "1"]
    assert at.selectbox(key="rollouts-env").value == "math" and at.slider(key="rollouts-steps").value == (1, 2)


def test_a_widget_writes_the_address_and_clear_empties_it(pages):
    pages.run()
    at = pages.open(run="demo")
    at.selectbox(key="rollouts-verdict").select("wrong").run()
    at.text_input(key="rollouts-text").set_value("ANSWER 3").run()
    assert (at.query_params["verdict"], at.query_params["text"]) == ("wrong", "ANSWER 3")
    assert "3 found; looked into 15 of 15 rollouts" in words(at)
    next(button for button in at.button if button.label == "Clear").click().run()
    assert "verdict" not in at.query_params and "30 rollouts" in words(at)


def test_the_picker_opens_a_rollout_without_a_mouse(pages):
    pages.run()
    at = pages.open(run="demo", tok="1")
    at.selectbox(key="rollout_picker").select((1, "6")).run()
    assert (at.query_params["step"], at.query_params["id"]) == ("1", "6") and "tok" not in at.query_params
    assert "Step 1, no. 6" in [s.value for s in at.subheader]


@pytest.mark.parametrize(
    "where", [{"step": "1", "id": "77"}, {"step": "9", "id": "1"}, {"id": "1"}, {"step": "1", "id": "../x"}]
)
def test_a_rollout_that_is_gone_gets_a_sentence(pages, where):
    pages.run()
    at = pages.open(run="demo", **where)
    assert "not among those that are kept" in words(at) and at.subheader


def test_a_file_that_is_gone_is_said_beside_the_numbers(pages):
    pages.run()
    for path in (pages.root / "demo" / "rollouts").glob("*"):
        path.unlink()
    said = words(pages.open(run="demo", step="1", id="6"))
    assert "Its texts and tokens cannot be read" in said and "is not there: deleted, moved" in said
    assert "reward 0.2" in said


def test_no_row_fulfils_the_filters(pages):
    pages.run()
    said = words(pages.open(run="demo", text="nowhere"))
    assert "0 found; looked into 30 of 30 rollouts" in said and "No rollout fulfils the filters" in said


def test_another_rank_has_its_own_ids(pages):
    pages.run(name="ranks", ranks=2, rank=1, launch="a")
    at = pages.open(run="ranks", step="1", id="1-6")
    assert [s.value for s in at.subheader] == ["Step 1, no. 1-6"]
    with pages.monitor.store.cursor() as con:
        assert {kept_id(row) for row in query.rollouts(con, 1)} == {f"1-{i}" for i in range(10)}


# -- of an alert --


def alert(signature, onset=1, last=2, **changes):
    names = query.AlertRow.__dataclass_fields__
    given = {"signature": signature, "step_onset": onset, "step_detected": onset, "step_last": last, "slice": None}
    return query.AlertRow(**dict.fromkeys(names) | given | changes)


def found_of(pages, wanted):
    with pages.monitor.store.cursor() as con:
        return rollouts_of_alert(con, 1, wanted)


def numbers(rows):
    return [(row.step, row.sample_id) for row in rows]


def test_an_alert_shows_what_it_is_about_most(pages):
    pages.run()
    found = found_of(pages, alert("repetition_collapse"))
    worst, best = numbers(found.worst), numbers(found.best)
    assert {*worst[:2]} == {(2, 3), (2, 7)} and {*worst[2:4]} == {(1, 3), (1, 7)} and found.word == "most repetition"
    assert best == [(2, 9), (1, 9), (2, 8), (1, 8), (2, 6)], "7 is among the worst already"
    assert numbers(found_of(pages, alert("accuracy_collapse", 0, 0)).worst) == [(0, i) for i in range(5)]
    assert {row.env for row in found_of(pages, alert("accuracy_collapse", slice="env=code")).worst} == {"code"}
    assert (found.first, found.last, found.inside) == (1, 2, True)


def test_an_alert_after_the_last_sampled_step_shows_the_one_before(pages):
    pages.run()
    found = found_of(pages, alert("length_collapse", 7, 9))
    assert ({row.step for row in found.worst}, found.inside, found.first) == ({2}, False, 2)


def test_a_run_without_rollouts_has_none_for_an_alert(pages):
    pages.run(rows=0)
    assert found_of(pages, alert("length_collapse")) is None


def test_rewards_that_are_not_finite_are_no_best(pages):
    recorder = pages.run(steps=1, rows=3)
    recorder.rollouts(1, [response(0, 1, reward=math.nan), response(1, 1, reward=0.5), response(2, 1, reward=None)])
    recorder.step(1, {})
    pages.catch_up()
    found = found_of(pages, alert("reward_stall", 1, 1))
    assert numbers([*found.worst, *found.best]) == [(1, 1)]


def test_a_loop_in_words():
    assert (
        loop_text(Loop(start=12, period=7, covered=30, at_end=True))
        == "Loop starts at token 12: 7 tokens, 4 rounds, to the end."
    )
