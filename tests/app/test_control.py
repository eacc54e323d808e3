"""The Control page under AppTest: what is filled in, predicted, asked and answered, and what a click sends. Runs are
written by the real Recorder; the real trainer is in test_control_browser.py.
"""

import json
import math
import time
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from regimescope.monitor import Bounds, Limits, TokenStats, WeightRule
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import Ack, Command, ControlFolder
from regimescope.monitor.edges import LR1
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
from regimescope.monitor.token_stats import RatioHist
from regimescope.monitor.ui import context, header
from regimescope.monitor.ui.prefill import from_link
from regimescope.monitor.ui.texts import BOUNDS

MAIN = Path(header.__file__).parent / "main.py"
TIGHT = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [1.0, 101.0]})
LOOSE = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
CAN = ("set_bounds", "pause", "resume", "stop", "checkpoint", "rollback")
RUN = "team/run"


def hist(ratio, tokens):
    place = bisect_right(LR1, math.log(ratio))
    counts = tuple(tokens if i == place else 0 for i in range(len(LR1) + 1))
    sums = tuple(map(float, counts))
    return RatioHist(
        counts=counts, ratio_sum=tuple(ratio * n for n in sums), abs_adv_sum=sums,
        abs_adv_ratio_sum=tuple(ratio * n for n in sums),
    )  # fmt: skip


def stats(held):
    """600 tokens of R1 at r = 1.05, 400 of R4 at r = 0.5, of which some are held at weight 1."""
    zero = (0.0,) * 7
    plain = TokenStats(
        tokens=(600, 0, 0, 400, 0, 0, 0), clip_high=(0,) * 7, clip_low=(0, 0, 0, held, 0, 0, 0), clamped=(0,) * 7,
        ratio_sum=(630.0, 0.0, 0.0, 200.0, 0.0, 0.0, 0.0), weight_sum=zero, signed_adv_weight_sum=zero,
        abs_adv_weight_sum=(630.0, 0.0, 0.0, 200.0 + held / 2, 0.0, 0.0, 0.0), entropy_sum=zero, logp_sum=zero,
        log_ratio_sum=zero, log_ratio_sq_sum=zero,
    )  # fmt: skip
    return replace(plain, hist_pos=hist(1.05, 600), hist_neg=hist(0.5, 400))


class Desk:
    """A run under tight bounds of A<0 with its monitor, and the Control page over it."""

    def __init__(self, root, record, **options):
        self.root = root
        self.recorder = record(root / RUN, rule=WeightRule.capped(TIGHT), can=CAN, **options)
        ControlFolder(root / RUN, launch=self.recorder.launch, can=())
        self.monitor = Monitor(root, store=Store.in_memory(root), actor="ana")
        given = {"read_token": "t", "actor": "ana", "address": "http://127.0.0.1:1"}
        context.install(context.Context(monitor=self.monitor, read_only=False, control_token=None, **given))

    def steps(self, first, end, bounds=TIGHT, revision=0, held=400):
        for step in range(first, end):
            self.recorder.buckets(step, 0, stats(held), revision=revision, bounds=bounds)
            self.recorder.ratio_hist(step, stats(held))
            self.recorder.step(step, {"accuracy": 0.5, "entropy_mean": 1.0})
            if step % 5 == 0:
                self.recorder.event("checkpoint", {"path": f"checkpoints/{step}"}, step=step)
        self.read()

    def read(self):
        while self.monitor.tick():
            pass

    def ask(self, kind, args, *, expect=0, ttl_s=300.0):
        """A command of somebody else."""
        with MonitorSegment(self.root / RUN) as segment:
            return issue(self.root / RUN, segment, kind=kind, args=args, launch=self.recorder.launch, expect=expect,
                         by="ben", why="seen elsewhere", ttl_s=ttl_s).id  # fmt: skip

    def files(self):
        return [json.loads(path.read_bytes()) for path in sorted((self.root / RUN / "control").glob("*.json"))]

    def open(self, **query):
        at = AppTest.from_file(str(MAIN), default_timeout=30)
        at.query_params.update(query)
        at.user = {}
        at.run()
        at._page_hash = calc_hash("control")
        return at.run()


@pytest.fixture
def desk(tmp_path, record):
    st.cache_data.clear()
    made = Desk(tmp_path, record)
    made.steps(0, 26)
    yield made
    context.install(None)
    made.monitor.stop()


def shown(at):
    assert not at.exception, at.exception
    kinds = (at.text, at.markdown, at.caption, at.subheader, at.warning, at.error, at.info)
    return "\n".join(str(element.value) for kind in kinds for element in kind).replace("\u00a0", " ")


def button(at, label):
    return next(element for element in at.button if element.label == label)


def field(at, bound):
    return next(element for element in at.number_input if element.key.endswith(bound))


def apply(at, name=None):
    next(element for element in at.text_area if element.key.startswith("why-")).set_value("seen")
    if name is not None:
        next(element for element in at.text_input if element.key.startswith("name-")).set_value(name)
    return button(at, "Apply").click().run()


# -- what would it change --


def test_editor_and_review_say_what_the_change_would_have_done(desk):
    at = desk.open()
    field(at, "neg.w_min").set_value(0.0)
    at = at.run()
    line = "8,000 of 20,000 tokens of steps 6 to 25 would change"
    row = "| **R4** | 100 % → 0 % | 0 % to 0 % | 38.8 % → 24.1 % | 8,000 of 8,000 |"
    words = shown(at)
    assert line in words and row.replace("38.8 %", "39 %").replace("24.1 %", "24 %") in words
    assert "not a forecast of the policy" in words
    at = button(at, "Review change").click().run()
    assert shown(at).count(line) == 2  # under the editor and in the dialog


def test_a_change_that_moves_nothing_is_said_to(desk):
    at = desk.open()
    field(at, "pos.w_max").set_value(5.0)
    words = shown(at.run())
    assert "0 of 20,000 tokens of steps 6 to 25 would change: on this batch it moves nothing." in words
    assert "| **R1** |" not in words


# -- what is filled in --


def test_bounds_of_an_address_are_filled_in_or_refused_in_words(desk):
    at = desk.open(neg_min="0.25", pos_max="500", neg_max="<b>x</b>", pos_min="nan")
    words = shown(at)
    assert "Filled in from the link: w_min of A<0 1 → 0.25" in words
    assert "w_max of A>0 = 500 is outside this run's limits 1 to 101: not filled in." in words
    assert "w_max of A<0 of this address is no number" in words and "w_min of A>0 of this address is no" in words
    assert "<b>" not in words
    assert [field(at, bound).value for bound in ("neg.w_min", "pos.w_max", "neg.w_max")] == [0.25, 11.0, 101.0]
    assert not button(at, "Review change").disabled


def test_an_infinite_bound_of_an_address_needs_an_open_limit():
    assert from_link({"neg_max": "inf"}, Limits()).values == {}
    assert from_link({"neg_max": "-1", "neg_min": ""}, Limits()).values == {}


def test_a_published_window_is_filled_in_as_far_as_the_limits_go(desk):
    at = button(desk.open(), "CISPO").click().run()
    assert [field(at, bound).value for bound in BOUNDS] == [
        0.0,
        101.0,
        0.0,
        101.0,
    ]
    at = button(at, "DAPO").click().run()
    words = shown(at)
    assert [field(at, bound).value for bound in BOUNDS] == [0.0, 1.28, 0.8, 101.0]
    assert "w_max of A<0 = ∞ is outside this run's limits 1 to 101: not filled in." in words
    at = button(at, "As in force").click().run()
    assert field(at, "pos.w_max").value == 11.0 and button(at, "Review change").disabled


# -- roll back --


def test_a_rollback_wants_the_name_and_sends_checkpoint_and_bounds(desk):
    at = desk.open(rollback="10")
    (picker,) = [box for box in at.selectbox if box.label == "To the checkpoint of"]
    assert picker.value == 10 and [label.split(",")[0] for label in picker.options][:2] == ["step 25", "step 20"]
    field(at, "neg.w_min").set_value(0.0)
    at = at.run()
    assert "The run goes on at step 11, under the bounds of the editor: w_min of A<0 1 → 0." in shown(at)
    at = button(at, "Review rollback").click().run()
    words = shown(at)
    assert "loads its checkpoint of step 10" in words and "Steps 11 to 25 count no longer" in words
    at = apply(at, name="run")
    assert "The typed name is not this run's name" in shown(at) and desk.files() == []
    apply(at, name=RUN)
    command = Command.from_wire(desk.files()[0])
    assert (command.kind, command.expect) == ("rollback", 0)
    assert command.args == {"checkpoint": 10, "bounds": LOOSE.to_wire()}
    desk.read()
    at = desk.open()
    assert "rollback to step 10 neg.w_min 1 → 0" in shown(at) and button(at, "Review rollback").disabled


def test_a_checkpoint_that_is_gone_is_said_and_the_newest_good_one_offered(desk):
    desk.recorder.event("checkpoint", {"path": "checkpoints/25", "deleted": [10]}, step=25)
    desk.read()
    at = desk.open(rollback="10")
    assert "The checkpoint of this address is not there" in shown(at)
    (picker,) = [box for box in at.selectbox if box.label == "To the checkpoint of"]
    assert picker.value == 25


def test_a_trainer_without_rollback_is_not_offered_one(tmp_path, record):
    desk = Desk(tmp_path, lambda folder, **options: record(folder, **{**options, "can": CAN[:-1]}))
    desk.steps(0, 6)
    at = desk.open()
    assert "This trainer takes no rollback" in shown(at)
    assert "Review rollback" not in [element.label for element in at.button]
    context.install(None)
    desk.monitor.stop()


# -- what became of it --


def test_what_expired_can_be_asked_again(desk):
    desk.ask("set_bounds", LOOSE.to_wire(), ttl_s=0.01)
    time.sleep(0.05)
    desk.read()
    at = desk.open()
    assert "Not applied: the trainer did not take it in time" in shown(at)
    at = button(at, "Ask again").click().run()
    at = at.run()
    assert "w_min of A<0: 1 → 0" in shown(at)
    apply(at)
    assert [wire["why"] for wire in desk.files() if wire["by"] == "ana"] == ["seen"]


def test_the_ranks_that_are_missing_are_named(tmp_path, record):
    desk = Desk(tmp_path, record, ranks=2, launch="one")
    desk.steps(0, 2)
    command = desk.ask("set_bounds", LOOSE.to_wire())
    desk.recorder.ack(Ack(id=command, step=2, status="applied", revision=1, applied=LOOSE))
    desk.read()
    at = desk.open()
    words = shown(at)
    assert "Applied by 1 of 2 ranks" in words and "Missing: rank 1, not heard of yet." in words
    assert at.dataframe[-1].value["ranks"].tolist() == ["1 of 2 ranks"]
    context.install(None)
    desk.monitor.stop()


def test_a_change_is_followed_and_can_be_reverted_by_a_new_command(desk):
    command = desk.ask("set_bounds", LOOSE.to_wire())
    desk.recorder.ack(Ack(id=command, step=26, status="applied", revision=1, applied=LOOSE))
    desk.steps(26, 38, bounds=LOOSE, revision=1, held=40)
    at = desk.open()
    words = shown(at)
    assert "12 of 30 steps seen" in words
    assert "| **R4** clipped | 100 % | 0 % | 10 % |" in words
    assert "| accuracy | 0.5 | 0.5 |" in words
    at = button(at, "Revert").click().run()
    at = at.run()
    assert "w_min of A<0: 0 → 1" in shown(at)
    apply(at, name=RUN)  # it tightens a bound of A<0
    (wire,) = [wire for wire in desk.files() if wire["by"] == "ana"]
    assert (wire["args"], wire["expect"]) == (TIGHT.to_wire(), 1)
