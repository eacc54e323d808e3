"""The pages under AppTest, over real segments and the real monitor: what each state shows, and what a click sends.

Runs are written by the Recorder, ingested and judged by ticks of the monitor; nothing is mocked. The live grid is
opaque here: the browser tests look at it.
"""

import json
import shlex
import time
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import Bounds, SignBounds, TokenStats, WeightRule, live, query
from regimescope.monitor.control import Ack, Command, ControlFolder
from regimescope.monitor.query import BoundChange
from regimescope.monitor.scores import MOST, scores
from regimescope.monitor.segments import find_runs
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.ui import context, header, session
from regimescope.monitor.ui.figures_score import score_chart
from regimescope.monitor.ui.session import page_style
from regimescope.monitor.ui.views.advice import prediction_lines
from regimescope.monitor.ui.views.review import Request, tightens_negative
from regimescope.monitor.what_if import Prediction

MAIN = Path(header.__file__).parent / "main.py"
TIGHT = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=1.0, w_max=101.0))
LOOSE = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
ONSET = 30


class Desk:
    """A root with its monitor, and the pages over it."""

    def __init__(self, root, record, write_step):
        self.root, self._record, self._write_step = root, record, write_step
        self.monitor = Monitor(root, store=Store.in_memory(root), actor="ana")
        self.install()

    def install(self, *, read_only=False, control_token=None):
        self.monitor.requests.read_only = read_only
        given = {"read_token": "t", "actor": "ana", "address": "http://127.0.0.1:1"}
        context.install(
            context.Context(monitor=self.monitor, read_only=read_only, control_token=control_token, **given)
        )

    def catch_up(self, limit_s=60.0):
        """Tick until every run below the root is known and read.

        A tick without news is no end: after a walk over the root that was slow, as on a busy machine, the next walk
        waits, and a run that came in between is seen some ticks later.
        """
        deadline = time.monotonic() + limit_s
        while self.monitor.tick() or self.unseen():
            assert time.monotonic() < deadline, f"still not in the index: {self.unseen()}"

    def unseen(self):
        """Runs below the root that the index does not know yet."""
        with self.monitor.store.cursor() as con:
            return set(find_runs(self.root)) - set(query.run_paths(con))

    def _open_run(self, name, **options):
        """A Recorder and the trainer's end of the control channel, which owns the folder."""
        recorder = self._record(self.root / name, **options)
        ControlFolder(self.root / name, launch=recorder.launch, can=())
        return recorder

    def healthy(self, name="calm", steps=14, **options):
        recorder = self._open_run(name, **options)
        for step in range(steps):
            self._write_step(recorder, step, infra_failed_frac=0.004)
        self.catch_up()
        return recorder

    def collapsing(self, name="sick", steps=48, buckets=True, **options):
        """Length and accuracy fall from step 30 on while w_min of A<0 holds 92 % of R4."""
        recorder = self._open_run(name, rule=WeightRule.capped(TIGHT), **options)
        for step in range(steps):
            sick = max(0.0, min(1.0, (step - ONSET) / 8))
            if buckets:
                recorder.buckets(step, 0, held_up(), revision=0, bounds=TIGHT)
            if step == 20:
                recorder.event("checkpoint", {"path": "checkpoints/20"}, step=step)
            wave = 0.01 * ((step * 7) % 5 - 2)
            values = {
                "accuracy": ((0.6 + wave) * (1 - 0.95 * sick), 256),
                "response_length_mean": ((34 + 40 * wave) * (1 - sick) + 3 * sick, 256),
                "grad_norm": (0.5 + wave) * (1 + 9 * sick),
                "kl_step": (0.01 + wave / 10) * (1 + 12 * sick),
                "entropy_mean": 0.4 + wave,
            }
            recorder.step(step, values)
        self.catch_up()
        return recorder

    def run_key(self, name):
        with self.monitor.store.cursor() as con:
            return con.execute("SELECT run_key FROM run WHERE path = ?", [name]).fetchall()[0][0]

    def command_files(self, name):
        return [json.loads(path.read_bytes()) for path in sorted((self.root / name / "control").glob("*.json"))]

    def open(self, page="", **query):
        at = AppTest.from_file(str(MAIN), default_timeout=30)
        at.query_params.update(query)
        at.user = {}
        at.run()
        if page:
            at._page_hash = calc_hash(page)  # switch_page() knows pages that are files only
            at.run()
        return at


def held_up():
    tokens = (300, 280, 500, 520, 40, 60, 300)
    ratios = (1.05, 0.95, 1.05, 0.8, 1.0, 1.0, 1.0)
    ratio_sum = tuple(t * r for t, r in zip(tokens, ratios, strict=True))
    weight_sum = (*ratio_sum[:3], 520.0, *ratio_sum[4:])
    return TokenStats(
        tokens=tokens,
        clip_high=(0,) * 7,
        clip_low=(0, 0, 0, 478, 0, 0, 0),
        clamped=(0,) * 7,
        ratio_sum=ratio_sum,
        weight_sum=weight_sum,
        abs_adv_weight_sum=(*weight_sum[:6], 0.0),
        signed_adv_weight_sum=(315.0, 266.0, -525.0, -520.0, 40.0, -60.0, 0.0),
        entropy_sum=tuple(map(float, tokens)),
        logp_sum=tuple(-float(t) for t in tokens),
        log_ratio_sum=(15.0, -14.0, 25.0, -116.0, 0.0, 0.0, 0.0),
        log_ratio_sq_sum=(1.0,) * 7,
    )


@pytest.fixture
def desk(tmp_path, record, write_step):
    st.cache_data.clear()
    st.cache_resource.clear()
    found = Desk(tmp_path, record, write_step)
    yield found
    context.install(None)
    found.monitor.stop()


def shown(at):
    """All words of the page."""
    assert not at.exception, at.exception
    kinds = (at.text, at.markdown, at.caption, at.subheader, at.warning, at.error, at.info, at.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def button(at, label):
    return next(element for element in at.button if element.label == label)


def labels(at):
    return [element.label for element in at.button]


# ---- states


def test_first_run_says_where_it_looks_and_how_to_begin(desk):
    desk.monitor.tick()
    words = shown(desk.open())
    assert "No data yet" in words
    assert str(desk.root) in words
    assert "from regimescope.monitor import Recorder" in words
    assert "regimescope train --scenario length-collapse" in words


def test_a_run_without_a_step_shows_the_checklist(desk, record):
    record(desk.root / "new").event("note", {})
    desk.catch_up()
    words = shown(desk.open())
    assert "Checklist" in words
    assert "run found" in words


def test_healthy_overview_answers_in_order(desk):
    desk.healthy()
    words = shown(desk.open())
    questions = ["Alive?", "Where?", "Policy or infrastructure?", "Held out?", "Which regime?"]
    positions = [words.index(f"**{question}**") for question in questions]
    assert positions == sorted(positions)
    assert "HEALTHY" in words
    assert "failed rollouts 0.4 %" in words
    assert "log eval.accuracy" in words
    assert {metric.label for metric in desk.open().metric} >= {"Accuracy", "Entropy, nat"}


def test_the_slice_of_the_address_is_drawn_and_an_unknown_one_is_everything(desk, record, write_step):
    recorder = record(desk.root / "two")
    for step in range(3):
        for name in ("math", "code"):
            recorder.scalars(step, {"accuracy": (0.5, 8)}, slice=("env", name))
        write_step(recorder, step)
    desk.catch_up()
    for wanted, value in (("2", 2), ("77", 0), ("x", 0), (None, 0)):
        at = desk.open(**({"slice": wanted} if wanted else {}))
        shown(at)
        assert at.selectbox(key="slice_picker").value == value
    at = at.selectbox(key="slice_picker").set_value(1).run()
    assert at.query_params["slice"] == "1" and at.selectbox(key="slice_picker").value == 1


def test_a_panel_that_lacks_its_field_names_it(desk, record):
    recorder = record(desk.root / "bare")
    for step in range(3):
        recorder.step(step, {"accuracy": 0.5})
    desk.catch_up()
    words = shown(desk.open())
    assert "Entropy (log entropy_mean)" in words
    assert "no regime evidence: log buckets" in words
    assert "Tokens by bucket (log buckets)" in words


def test_collapsing_names_signature_onset_regime_and_bound_on_every_page(desk):
    desk.collapsing()
    for page in ("", "alerts", "control"):
        words = shown(desk.open(page))
        assert "COLLAPSING" in words
        assert "driven by R4" in words
    words = shown(desk.open())
    assert "move w_min of A<0: 1 → 0" in words
    assert "bounds lint" in words
    assert "last good checkpoint: step 20" in words


def test_control_tells_the_lint_with_a_way_to_fill_in_its_remedy(desk):
    desk.collapsing(steps=4)
    at = desk.open("control")
    assert "DISPO reports length collapse" in shown(at)
    assert [link.proto.label for link in at.get("page_link") if "Fill in" in link.proto.label] == [
        "Fill in w_min of A<0: 1 → 0"
    ]


def test_the_alerts_page_says_which_rules_cannot_see_what(desk):
    desk.healthy(steps=4)
    at = desk.open("alerts")
    shown(at)
    (foot,) = (element.label for element in at.expander if " rules: " in element.label)
    assert "blind" in foot and "warming up" in foot


def test_the_alert_card_gives_times_reasons_and_the_way_out(desk):
    desk.collapsing(steps=37)
    at = desk.open("alerts")
    words = shown(at)
    assert "Onset step" in words and "detected step" in words
    assert "Paper expects R4; measured here: R4 (clipped low 92 %" in words
    assert "#### w_min of A<0: 1 → 0" in words
    assert "Intended shortening" in words
    assert "Runbook: docs/signatures/length_collapse.md" in [element.label for element in at.expander]
    assert "Which bound to move" in words and "](" not in words, "the runbook stands there, without dead links"
    assert "Real runs, lab runs of fresh seeds: none in" in words and "Generated runs: none in" in words
    assert "No prediction: No histogram over log r" in words
    assert len(at.get("plotly_chart")) == 3, "timeline, evidence, score"


def test_the_last_good_checkpoint_leads_to_a_rollback_where_the_trainer_can_do_one(desk):
    desk.collapsing(can=("set_bounds", "rollback"))
    at = desk.open("alerts")
    shown(at)
    (link,) = [link.proto for link in at.get("page_link") if "Roll back" in link.proto.label]
    assert "checkpoint of step 20" in link.label
    assert "rollback=20" in link.query_string and "alert=" in link.query_string


def test_the_score_of_an_alert_comes_from_the_stored_steps_as_the_detectors_saw_them(desk):
    desk.collapsing()
    with desk.monitor.store.cursor() as con:
        scored = [a for a in query.alerts(con, 1) if a.score is not None and a.step_last == 47 and a.state == "firing"]
        assert "length_collapse" in {a.signature for a in scored} and len(scored) > 2
        for alert in scored:
            found = scores(con, 1, alert, desk.monitor.rules, first=10, last=47)
            assert found.steps == list(range(10, 48)) and found.values[-1] == pytest.approx(alert.score)
            assert alert.signature != "length_collapse" or not any(found.values[:10]), "quiet while nothing is wrong"
        assert scores(con, 1, scored[0], desk.monitor.rules, first=0, last=MOST + 1) is None
    chart = score_chart(found, scored[0], first=10, last=47, theme="dark")
    assert chart.layout.shapes[0].y0 == 1 and chart.layout.yaxis.range[1] > max(v for v in found.values if v)


def test_incidents_name_their_cause_and_what_came_with_it(desk):
    desk.collapsing()
    at = desk.open("alerts")
    shown(at)
    table = next(element.value for element in at.dataframe if "probable cause" in element.value)
    row = table[table["probable cause"] == "Length collapse"].iloc[0]
    assert row["driver"] == "R4" and row["state"] == "firing" and "early" in row["with"]


def test_a_prediction_says_over_which_steps_and_when_nothing_would_change():
    found = Prediction(obstacle="", steps=20, first=20, last=39, tokens=5787, changed=0)
    (line,) = prediction_lines(found)
    assert line.startswith("Predicted over steps 20 to 39: 0 of 5,787 tokens would change.") and "no" in line
    assert prediction_lines(Prediction(obstacle="no histogram")) == ["No prediction: no histogram"]


def test_once_accuracy_is_gone_the_card_leads_back_to_the_checkpoint_before(desk):
    desk.collapsing(framework="regimescope 0.1.0")
    at = desk.open("alerts")
    words = shown(at)
    assert "#### Roll back to step 20, with w_min of A<0: 1 → 0" in words
    assert "Roll back to the checkpoint of step 20" in words
    assert [code.value.splitlines()[-1].endswith("--checkpoint 20 --set 'bounds.neg=[0,101]'") for code in at.code] == [
        True
    ]
    assert not [link for link in at.get("page_link") if "Review this change" in link.proto.label]


def test_the_rescue_plan_says_what_it_costs_and_is_one_click_for_a_living_trainer(desk):
    desk.collapsing(framework="regimescope 0.1.0", can=("set_bounds", "rollback"))
    at = desk.open("alerts")
    words = shown(at)
    assert "**Rescue plan**" in words and "Go back to: That of step 20" in words
    assert "Resume with: A>0 [0.8, 11], A<0 [0, 101]: w_min of A<0 moves from 1 to 0." in words
    assert "Lost: 27 steps done again" in words and "Relaxing now: No: accuracy is gone." in words
    (link,) = [link.proto for link in at.get("page_link") if "Roll back" in link.proto.label]
    assert "rollback=20" in link.query_string
    (code,) = [code.value for code in at.code]
    assert code.startswith("regimescope rollback ") and "--to 20 --neg-min 0 --why length_collapse" in code


def test_the_rescue_plan_of_another_trainer_is_in_its_own_words(desk):
    desk.collapsing(framework="verl 0.9.1", can=(), limits=None)
    at = desk.open("alerts")
    words = shown(at)
    assert "Cannot be said there: lower bound of A>0 (R2): 0 instead of 0.8" in words
    (code,) = [code.value.splitlines() for code in at.code]
    assert code[0].endswith("policy_loss.loss_mode=cispo")
    assert code[-1] == "trainer.resume_mode=resume_path trainer.resume_from_path=checkpoints/20"


def test_a_log_without_buckets_says_on_the_card_that_no_regime_can_be_named(desk):
    desk.collapsing(buckets=False, framework="verl 0.9.1")
    words = shown(desk.open("alerts"))
    assert "no attribution: log buckets" in words and "paper expects R4" in words
    assert "Paper expects R4; measured here: nothing, the log has no buckets." in words
    assert "add Recorder.buckets to the policy loss" in words


def test_an_alert_of_the_address_that_is_gone_is_said(desk):
    desk.collapsing()
    assert "The alert of this address is gone" in shown(
        desk.open("alerts", alert="00000000-0000-5000-8000-000000000000")
    )


def test_stale_is_said_and_nothing_can_be_sent(desk, monkeypatch):
    desk.collapsing(framework="regimescope 0.1.0")
    monkeypatch.setattr(live, "STALE_FLOOR_S", 0.01)
    time.sleep(0.1)
    desk.catch_up()
    at = desk.open("control")
    words = shown(at)
    assert "STALE" in words and "last sign of life" in words
    assert "COLLAPSING" in words  # stays visible beside it
    assert "This run is silent" in words
    assert "regimescope train --resume --run-dir" in words
    assert all(element.disabled for element in at.button)


def test_the_command_to_resume_can_be_pasted_whatever_the_folder_is_called(desk):
    name = "a run; touch b's"
    desk.healthy(name, framework="regimescope 0.1.0").end("stopped")
    desk.catch_up()
    at = desk.open("control", run=name)
    (command,) = [code.value for code in at.code if "--resume" in code.value]
    assert shlex.split(command) == ["regimescope", "train", "--resume", "--run-dir", str(desk.root / name)]


def test_a_run_of_another_trainer_is_not_resumed_by_ours(desk):
    desk.healthy().end("finished")
    desk.catch_up()
    words = shown(desk.open("control"))
    assert "start this run again with its own trainer" in words and "--resume" not in words


def test_ended_is_said_and_nothing_can_be_sent(desk):
    desk.healthy().end("finished")
    desk.catch_up()
    at = desk.open("control")
    assert "ENDED" in shown(at) and "finished after step 13" in shown(at)
    assert "This run has ended" in shown(at)
    assert all(element.disabled for element in at.button)


def test_paused_can_be_resumed_and_steered(desk):
    desk.healthy().state("paused", step=13)
    desk.catch_up()
    at = desk.open("control")
    assert "PAUSED" in shown(at)
    assert not button(at, "Resume").disabled
    assert button(at, "Pause").disabled


def test_paused_by_a_command_says_who(desk):
    recorder = desk.healthy()
    command = desk.monitor.requests.submit(
        desk.run_key("calm"), kind="pause", args={}, expect=None, by="bo", why="look"
    )
    recorder.ack(Ack(id=command.id, step=13, status="applied"))
    recorder.state("paused", step=13)
    desk.catch_up()
    assert "at step 13 by bo" in shown(desk.open())


def test_a_segment_of_a_newer_version_is_named_where_no_run_can_be_shown(desk):
    folder = desk.root / "new" / "segments"
    folder.mkdir(parents=True)
    line = {"v": 99, "k": "header", "q": 0, "t": 1.0, "run": "x", "launch": "a", "writer": "regimescope 9.9"}
    (folder / "r00000-1-1-0000.jsonl").write_text(json.dumps(line) + "\n")
    for _ in range(4):
        desk.monitor.tick()
    words = shown(desk.open())
    assert "wire version 99" in words and "pip install -U regimescope" in words


def test_a_segment_that_was_cut_is_named_and_the_run_read_again(desk):
    desk.healthy(steps=20)
    (path,) = (desk.root / "calm" / "segments").glob("r*.jsonl")
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n", len(data) // 2) + 1])
    desk.catch_up()
    words = shown(desk.open())
    assert "shortened or replaced after it was read" in words and path.name in words


def test_an_index_that_is_behind_says_so_on_every_page(desk):
    desk.healthy()
    desk.monitor.progress.ticked(time.monotonic() - 40, {}, ["calm"], ["calm"])
    for page in ("", "alerts"):
        assert "The index is being rebuilt from the segments, for 4" in shown(desk.open(page))
    desk.monitor.store.rebuilt = False
    assert " s behind the segments: the newest steps are missing" in shown(desk.open())
    desk.monitor.progress.idle(time.monotonic())
    assert "behind the segments" not in shown(desk.open())


def test_before_the_first_look_the_page_reads_instead_of_claiming_that_there_is_nothing(desk):
    words = shown(desk.open())
    assert "Reading the runs" in words and "No data yet" not in words


def test_read_only_has_no_control_page_and_no_buttons(desk):
    desk.collapsing()
    desk.install(read_only=True)
    at = desk.open("alerts")
    assert "read-only" in shown(at)
    assert labels(at) == []
    at = desk.open("control")
    assert "Bounds in force" not in "\n".join(element.value for element in at.subheader)


def test_an_observed_run_takes_no_commands(desk, record, write_step):
    recorder = record(desk.root / "observed", can=(), limits=None)
    write_step(recorder, 0)
    write_step(recorder, 1)
    desk.catch_up()
    at = desk.open("control")
    assert "only observed" in shown(at)
    assert all(element.disabled for element in at.button)


def test_a_run_is_looked_up_and_never_a_path(desk, monkeypatch):
    monkeypatch.setattr(session, "WAIT_S", 0.0)
    desk.healthy()
    at = desk.open(run="../../etc")
    assert "not below this root" in shown(at)
    assert at.query_params["run"] in ("calm", ["calm"])


def test_a_link_to_a_run_that_is_not_here_yet_waits_for_it_and_keeps_its_address(desk):
    desk.healthy()
    at = desk.open(run="late")
    assert "not here yet" in shown(at) and "Alive?" not in shown(at)
    assert at.query_params["run"] in ("late", ["late"])
    desk.healthy("late")
    at.run()
    assert "not here yet" not in shown(at) and "Alive?" in shown(at)
    assert at.query_params["run"] in ("late", ["late"]) and at.selectbox[0].value == "late"


def test_another_run_can_be_picked_while_one_waits(desk):
    desk.healthy()
    at = desk.open(run="late")
    at.selectbox[0].set_value("calm").run()
    assert "Alive?" in shown(at) and at.query_params["run"] in ("calm", ["calm"])


def test_text_of_a_run_is_never_markup(desk, record, write_step):
    evil = "![x](https://x.test/a.png) <img src=x onerror=alert(1)>"
    recorder = record(desk.root / "evil", name=evil, config={"note": evil})
    write_step(recorder, 0)
    desk.catch_up()
    for page in ("", "alerts", "control"):
        at = desk.open(page)
        for kind in (at.markdown, at.caption, at.error, at.warning, at.info, at.metric):
            assert not any("x.test" in str(element.value) for element in kind)


# ---- commands


def reviewed(desk, bound, value, name="sick", **query):
    """The Control page with one bound edited and the review open."""
    at = desk.open("control", run=name, **query)
    field = next(element for element in at.number_input if element.key.endswith(bound))
    field.set_value(value)
    at.run()
    return button(at, "Review change").click().run()


def apply(at, why="R4 is held up", name=None):
    next(element for element in at.text_area if element.key.startswith("why-")).set_value(why)
    if name is not None:
        next(element for element in at.text_input if element.key.startswith("name-")).set_value(name)
    return button(at, "Apply").click().run()


def test_apply_sends_exactly_one_command_with_the_revision_seen(desk):
    recorder = desk.collapsing()
    at = reviewed(desk, "neg.w_min", 0.0)
    assert "w_min of A<0: 1 → 0" in shown(at)
    assert "relaxes" in shown(at)
    assert desk.command_files("sick") == []
    at = apply(at)
    shown(at)
    (wire,) = desk.command_files("sick")
    command = Command.from_wire(wire)
    assert command.kind == "set_bounds"
    assert command.args == LOOSE.to_wire()
    assert command.expect == 0
    assert command.launch == recorder.launch
    assert (command.by, command.why) == ("ana", "R4 is held up")


def test_pending_blocks_a_second_change_until_the_trainer_answers(desk):
    recorder = desk.collapsing()
    apply(reviewed(desk, "neg.w_min", 0.0))
    desk.catch_up()
    at = desk.open("control", run="sick")
    assert "pending" in shown(at)
    assert "A change of bounds is on its way" in shown(at)
    assert button(at, "Review change").disabled
    command = Command.from_wire(desk.command_files("sick")[0])
    recorder.ack(Ack(id=command.id, step=49, status="applied", revision=1, applied=LOOSE))
    desk.catch_up()
    words = shown(desk.open("control", run="sick"))
    assert "Applied at step 49, revision 1" in words
    assert "Revision 1, in force since step 49" in words


def test_a_rejection_is_shown_in_the_trainers_words(desk):
    recorder = desk.collapsing()
    apply(reviewed(desk, "neg.w_min", 0.5))
    command = Command.from_wire(desk.command_files("sick")[0])
    recorder.ack(Ack(id=command.id, step=None, status="rejected", message="revision 3 is in force, not 0"))
    desk.catch_up()
    assert "Rejected by the trainer: revision 3 is in force, not 0" in shown(desk.open("control", run="sick"))


def test_a_request_that_was_sent_is_never_sent_again(desk):
    desk.collapsing()
    at = reviewed(desk, "neg.w_min", 0.0)
    at.session_state["sent_requests"] = {at.session_state["review_request"].token}
    apply(at)
    assert desk.command_files("sick") == []


def test_a_reason_is_required(desk):
    desk.collapsing()
    at = apply(reviewed(desk, "neg.w_min", 0.0), why="  ")
    assert "Give a reason" in shown(at)
    assert desk.command_files("sick") == []


def test_tightening_a_negative_bound_wants_the_runs_name(desk):
    desk.healthy("calm")
    at = apply(reviewed(desk, "neg.w_max", 5.0, name="calm"), name="clam")
    assert "The typed name is not this run's name" in shown(at)
    assert desk.command_files("calm") == []
    apply(at, name="calm")
    assert len(desk.command_files("calm")) == 1


def test_relaxing_or_moving_the_positive_pair_wants_no_name(desk):
    desk.collapsing()
    for bound, value in (("neg.w_min", 0.0), ("pos.w_max", 5.0), ("pos.w_min", 0.9)):
        at = reviewed(desk, bound, value)
        assert not [element for element in at.text_input if element.key and element.key.startswith("name-")]


def test_a_change_of_revision_under_the_dialog_blocks_apply(desk):
    recorder = desk.collapsing()
    at = reviewed(desk, "neg.w_min", 0.0)
    recorder.buckets(48, 0, held_up(), revision=1, bounds=LOOSE)
    recorder.step(48, {"accuracy": 0.1})
    recorder.ack(Ack(id="0199a3c4-7d1e-7000-8000-0000000000a1", step=48, status="applied", revision=1, applied=LOOSE))
    desk.catch_up()
    at = apply(at)
    assert "The bounds changed while this was open" in shown(at)
    assert desk.command_files("sick") == []


def test_the_link_of_an_alert_prefills_its_change(desk):
    desk.collapsing()
    with desk.monitor.store.cursor() as con:
        rows = con.execute("SELECT alert_id::VARCHAR FROM alert WHERE signature = 'length_collapse'").fetchall()
    at = desk.open("control", run="sick", alert=rows[0][0])
    assert "Prefilled from the alert" in shown(at)
    button(at, "Review change").click().run()
    apply(at)
    (wire,) = desk.command_files("sick")
    assert wire["alert"] == rows[0][0]
    assert wire["args"] == LOOSE.to_wire()


@pytest.mark.parametrize(
    ("label", "kind", "typed"), [("Pause", "pause", True), ("Stop", "stop", True), ("Checkpoint", "checkpoint", False)]
)
def test_run_commands_and_the_typed_name(desk, label, kind, typed):
    desk.healthy()
    at = button(desk.open("control", run="calm"), label).click().run()
    if typed:
        at = apply(at, why="look", name="other")
        assert desk.command_files("calm") == []
    apply(at, why="look", name="calm" if typed else None)
    (wire,) = desk.command_files("calm")
    assert wire["kind"] == kind


def test_off_loopback_the_control_token_is_asked_once(desk):
    desk.collapsing()
    desk.install(control_token="s3cret-s3cret-s3cret")
    at = desk.open("control")
    assert button(at, "Review change").disabled
    at.text_input[0].set_value("wrong-wrong-wrong-wrong")
    at = button(at, "Unlock control").click().run()
    assert "control token is wrong" in shown(at)
    at.text_input[0].set_value("s3cret-s3cret-s3cret")
    at = button(at, "Unlock control").click().run()
    assert "Unlock control" not in labels(at)


def test_a_run_whose_control_folder_is_gone_says_that_nothing_was_sent(desk):
    desk.collapsing()
    (desk.root / "sick" / "control").rmdir()
    words = shown(apply(reviewed(desk, "neg.w_min", 0.0)))
    assert "Nothing was sent." in words
    assert "control" in words


def test_a_request_for_another_run_is_dropped(desk):
    desk.collapsing()
    desk.healthy()
    at = reviewed(desk, "neg.w_min", 0.0)
    assert "Apply" in labels(at)
    for other in ("calm", "sick"):  # on the way back too: what was dropped does not come again
        at.query_params["run"] = other
        at.run()
        assert at.selectbox[0].value == other
        assert "Apply" not in labels(at)


@pytest.mark.parametrize(
    ("name", "old", "new", "tight"),
    [
        ("neg.w_min", 0.0, 0.1, True),
        ("neg.w_min", 1.0, 0.0, False),
        ("neg.w_max", 101.0, 5.0, True),
        ("neg.w_max", 5.0, 101.0, False),
        ("pos.w_max", 11.0, 5.0, False),
    ],
)
def test_what_counts_as_tightening(name, old, new, tight):
    assert tightens_negative(BoundChange(name=name, old=old, new=new)) is tight


def test_a_request_knows_what_it_changes():
    request = Request(kind="set_bounds", path="r", run_key=1, launch_id="l", revision=0, old=LOOSE, new=TIGHT)
    assert [(change.name, change.old, change.new) for change in request.changes] == [("neg.w_min", 0.0, 1.0)]
    assert request.needs_name


# ---- marks


def marks_of(desk):
    desk.catch_up()
    with desk.monitor.store.cursor() as con:
        return con.execute("SELECT kind, actor, text FROM mark ORDER BY ts").fetchall()


def test_acknowledge_is_written_and_shown(desk):
    desk.collapsing()
    button(desk.open("alerts"), "Acknowledge").click().run()
    assert marks_of(desk) == [("acknowledge", "ana", "")]
    assert "Acknowledge by ana" in shown(desk.open("alerts"))
    assert "COLLAPSING" in shown(desk.open())


def test_a_false_alarm_takes_the_verdict_back(desk):
    desk.collapsing()
    at = desk.open("alerts")
    next(element for element in at.text_input if element.label == "What is it instead?").set_value("new data")
    button(at, "Mark as false alarm").click().run()
    assert marks_of(desk) == [("false_alarm", "ana", "new data")]
    assert "length collapse since" not in shown(desk.open())


def test_notes_are_listed_on_their_alert_with_who_and_when(desk):
    desk.collapsing()
    at = desk.open("alerts")
    next(element for element in at.text_area if element.label == "Note for the next person").set_value(
        "<b>eval</b> down"
    )
    button(at, "Save note").click().run()
    with desk.monitor.store.cursor() as con:
        picked = at.query_params.get("alert") or at.selectbox(key="alert_picker").value
        other = next(a.alert_id for a in query.alerts(con, 1) if a.alert_id != picked and a.state != "pending")
    desk.catch_up()
    at = desk.open("alerts", alert=picked)
    lines = [element.value for element in at.text if "<b>eval</b> down" in element.value]
    today = time.strftime("%Y-%m-%d")
    assert len(lines) == 1 and lines[0].startswith(f"ana, {today} ") and lines[0].endswith(": <b>eval</b> down")
    assert "**1 note**" in [element.value for element in at.markdown]
    assert "<b>eval</b> down" not in shown(desk.open("alerts", alert=other))


def test_a_long_name_stands_in_full_in_the_strip(desk):
    name = "qwen3-8b-dispo-math-level5-neg-min-zero-seed1234-cluster-eu-1a"
    desk.healthy(name)
    desk.healthy("short")
    assert name in [element.value for element in desk.open(run=name).text]
    assert "short" not in [element.value for element in desk.open(run="short").text]


def test_held_out_is_no_tick_after_a_collapse(desk, record, write_step):
    recorder = record(desk.root / "fell")
    for step in range(14):
        write_step(recorder, step, **({"eval.accuracy": 0.58 if step == 0 else 0.0} if step % 6 == 0 else {}))
    desk.catch_up()
    words = shown(desk.open())
    assert "eval.accuracy 0 % at step 12" in words and "best 58 % at step 0 · 3 evaluations" in words
    assert ":red-badge[:material/error: 0 %]" in words


def test_the_style_sheet_names_colours_of_the_palette_only():
    assert "--rs-critical: #B2182B" in page_style("light")
    assert "--rs-critical: #FF6B6B" in page_style("dark")
