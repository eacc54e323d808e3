"""The scorecard counts what it says: found, lag, lead, false alarms, targets; it reads run folders and the logs of
others."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.private import read_root
from regimescope.monitor.record import Recorder
from regimescope.monitor.token_stats import TokenStats

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def card():
    """Imports a module of benchmarks/scorecard."""
    sys.path.append(ROOT)  # benchmarks are no part of the package
    yield lambda name: importlib.import_module(f"benchmarks.scorecard.{name}")
    sys.path.remove(ROOT)


def _case(card, state, length=None, halved=None, rows=100):
    return card("cases").Case(
        name=f"{state} {length} {halved}", objective="dispo", rows=[{"step": float(2 * i)} for i in range(rows)],
        state=state, onsets={} if length is None else {"length": length}, halved=halved,
    )  # fmt: skip


def _answer(card, *alarms, rows=100):
    return card("workers").Answer(alarms=list(alarms), rows=rows, seconds=0.1)


def test_lag_is_in_steps_and_own_names_are_told_from_any(card):
    case = _case(card, "failed", length=60, halved=80)
    answer = _answer(card, (5, "other", "warning"), (31, "other", "warning"), (33, "mine", "warning"))
    found = card("score").found("length", ["mine"], [case], {case.name: answer})
    assert (found.runs, found.named, found.any, found.critical) == (1, 1, 1, 0)
    assert (found.named_lag, found.any_lag) == (6, 2)  # the alarm at step 10 is long before: no detection
    assert card("score").found("length", None, [case], {case.name: answer}).named is None
    assert card("score").lead([case], {case.name: answer}).median == 18


def test_the_lint_neither_finds_nor_is_false(card):
    score = card("score")
    failed, healthy = _case(card, "failed", length=60, halved=80), _case(card, "healthy")
    answers = {case.name: _answer(card, (31, score.LINT, "warning")) for case in (failed, healthy)}
    assert score.found("length", ["mine"], [failed], answers).any == 0
    assert score.lead([failed], answers).in_time == 0
    assert score.false_alarms([healthy], answers).episodes == 0
    assert score.linted(answers[healthy.name])


def test_a_dimmed_alert_finds_nothing_and_is_not_false(card):
    score = card("score")
    failed, healthy = _case(card, "failed", length=60, halved=80), _case(card, "healthy")
    answers = {case.name: _answer(card, (31, "mine", "dimmed")) for case in (failed, healthy)}
    found = score.found("length", ["mine"], [failed], answers)
    assert (found.any, found.named, found.critical) == (0, 0, 0)
    assert score.false_alarms([healthy], answers).episodes == 0


def test_close_alarms_are_one_and_unclear_runs_count_nothing(card):
    score = card("score")
    healthy, unclear = _case(card, "healthy"), _case(card, "unclear")
    alarms = [(10, "a", "warning"), (29, "b", "critical"), (49, "a", "warning")]
    answers = {case.name: _answer(card, *alarms) for case in (healthy, unclear)}
    false = score.false_alarms([healthy, unclear], answers)
    assert (false.episodes, false.critical, false.steps) == (2, 1, 100)
    assert false.rate == 20 and false.bound > false.rate


def test_a_run_whose_bounds_were_changed_is_unclear(card, tmp_path):
    lines = [f"{step},0.5,{int(step > 5)}" for step in range(12)]
    (tmp_path / "moved.csv").write_text("\n".join(["step,accuracy,neg.w_min", *lines]))
    (tmp_path / "still.csv").write_text("\n".join(["step,accuracy", *(line[:-2] for line in lines)]))
    assert [case.state for case in card("cases").lab(tmp_path)] == ["unclear", "healthy"]


@pytest.mark.parametrize(("count", "bound"), [(0, 2.996), (1, 4.744), (10, 16.962), (101, 119.16)])
def test_poisson_upper(card, count, bound):
    assert card("score").poisson_upper(count) == pytest.approx(bound, rel=2e-3)


def test_a_detector_sees_no_future(card):
    """Alarms of a prefix are those of the whole run that fall into it."""
    traces = importlib.import_module("benchmarks.detectors.traces")
    rows = [{"step": float(i), **row} for i, row in enumerate(traces.incident("length", 40, 90, 3))]
    runs = [{"name": str(n), "objective": "dispo", "rows": rows[:n]} for n in (50, len(rows))]
    for name in ("ours", "zscore"):
        prefix, whole = card("worker").watch(name, runs).values()
        assert whole["alarms"] and prefix["alarms"] == [alarm for alarm in whole["alarms"] if alarm[0] < 50]


def test_log_columns_hold_no_bucket_bound_kl_or_gradient(card):
    row = {
        "step": 1.0,
        "accuracy": 0.5,
        "accuracy.n": 64.0,
        "grad_norm": 1.0,
        "kl_step": 0.1,
        "kl_ref": 0.1,
        "R4.ratio_mean": 1.0,
        "neg.w_min": 0.0,
    }
    views = card("views")
    case = card("cases").Case(name="x", objective="", rows=[row], state="healthy", onsets={}, halved=None)
    assert views.seen(case, views.ALL) == [row]
    assert views.seen(case, views.LOG) == [{"step": 1.0, "accuracy": 0.5, "accuracy.n": 64.0}]
    assert views.seen(case, views.COUNTLESS) == [{"step": 1.0, "accuracy": 0.5}]


def test_public_logs_of_four_kinds(card, tmp_path):
    read = card("public_logs").read_log
    verl = "\x1b[36m(main pid=1)\x1b[0m step:3 - actor/entropy:0.46 - critic/score/mean:np.float64(0.5)"
    (tmp_path / "a.log").write_text(f"{verl}\nstep: 4 - is prose\n")
    (tmp_path / "b.out").write_text(
        "10%| 1/9 {'loss': '0.1', 'reward': 0.2}\n{'loss': nan, 'reward': 0.3}\n{'other': 1}\n"
    )
    history = [{"step": 5, "completions/mean_length": 40, "epoch": 1}, {"step": 10, "completions/mean_length": 40}]
    (tmp_path / "c.json").write_text(json.dumps({"log_history": history}))
    (tmp_path / "d.jsonl").write_text('{"step": 0, "env/all/by_group/frac_mixed": 0.75, "env/all/reward/total": 1}\n')
    assert read(tmp_path / "a.log") == [{"step": 3, "entropy_mean": 0.46, "reward_mean": 0.5}]
    first, second = read(tmp_path / "b.out")
    assert first == {"step": 1, "loss": 0.1, "reward_mean": 0.2} and math.isnan(second["loss"])
    assert read(tmp_path / "c.json") == [{"step": 5, "response_length_mean": 40}]  # the second repeats the first
    assert read(tmp_path / "d.jsonl") == [{"step": 0, "reward_mean": 1, "zero_variance_frac": 0.25}]


# ---------------------------------------------------------------- peers and targets
def _numbers(card, recall, lag, false):
    return card("rivals").Numbers(recall=recall, lag=lag, false=false)


@pytest.mark.parametrize(
    ("other", "better", "beats"),
    [
        ((1.0, 5, 0.0), [], True),  # a tie is the peer's
        ((1.0, 4, 0.0), ["lag"], True),
        ((1.0, 4, 0.1), ["lag"], False),
        ((0.9, 4, 0.0), ["lag"], False),
        ((0.0, math.inf, 0.0), [], False),
        ((1.0, 6, 0.0), [], False),
    ],
)
def test_a_peer_beats_ours_only_when_it_is_as_good_in_all_three(card, other, better, beats):
    own, peer = _numbers(card, 1.0, 5, 0.0), _numbers(card, *other)
    assert (card("rivals").better(peer, own), card("rivals").beats(peer, own)) == (better, beats)


def test_without_failures_a_peer_beats_ours_by_fewer_false_alarms(card):
    own = _numbers(card, math.nan, math.inf, 1.0)
    assert card("rivals").beats(_numbers(card, math.nan, math.inf, 0.5), own)
    assert not card("rivals").beats(_numbers(card, math.nan, math.inf, 1.0), own)


def test_a_peer_is_credited_for_any_alarm_and_ours_for_its_name_alone(card):
    case = _case(card, "failed", length=60, halved=80)
    answers = {case.name: _answer(card, (31, "early_accuracy", "warning"), (33, "length_collapse", "warning"))}
    assert card("rivals").numbers("ours", "length", [case], answers).lag == 6
    assert card("rivals").numbers("zscore", "length", [case], answers).lag == 2


def _verdicts(card, kind, runs, answers):
    targets = card("targets")
    data = targets.DataSet(title="t", kind=kind, note="", runs=runs)
    return {verdict.target.partition(",")[0]: verdict for verdict in targets.verdicts(data, {"ours": answers})}


@pytest.mark.parametrize(
    ("alarm", "recall", "lag"),
    [
        ((33, "length_collapse", "critical"), "met", "met"),
        ((36, "length_collapse", "critical"), "met", "missed"),
        ((33, "length_collapse", "warning"), "missed", "missed"),
        ((33, "repetition_collapse", "critical"), "missed", "missed"),
    ],
)
def test_a_collapse_wants_a_critical_under_its_own_name_in_time(card, alarm, recall, lag):
    case = _case(card, "failed", length=60, halved=80)
    found = _verdicts(card, "fresh", [case], {case.name: _answer(card, alarm)})
    assert found["length: critical under its own name in every run"].state == recall
    assert found["length: that alert at most 10 steps after the onset"].state == lag


@pytest.mark.parametrize(
    ("kind", "rows", "alarms", "state"),
    [
        ("fresh", 5000, (), "met"),
        ("fresh", 4999, (), "open"),
        ("fresh", 5000, ((10, "a", "warning"),), "met"),
        ("fresh", 5000, ((10, "a", "warning"), (90, "a", "warning")), "missed"),
        ("fresh", 5000, ((10, "a", "critical"),), "missed"),
        ("fresh", 100, ((10, "a", "critical"),), "missed"),
        ("public", 100, (), "met"),
        ("generated", 20_000, ((10, "a", "warning"),), "met"),
        ("generated", 19_999, ((10, "a", "warning"),), "missed"),
    ],
)
def test_healthy_runs_want_silence_and_enough_rows(card, kind, rows, alarms, state):
    case = _case(card, "healthy")
    found = _verdicts(card, kind, [case], {case.name: _answer(card, *alarms, rows=rows)})
    assert found["healthy: no critical"].state == state


def test_only_runs_in_which_a_bound_binds_ask_for_a_warning_in_time(card):
    target = "a warning by the step at which accuracy is half gone"
    case = _case(card, "failed", length=60, halved=80)
    late = {case.name: _answer(card, (41, "length_collapse", "critical"))}
    assert _verdicts(card, "fresh", [case], late)[target].state == "open"
    case.rows[40]["R4.clip_low_frac"] = 0.2  # step 80
    assert _verdicts(card, "fresh", [case], late)[target].state == "missed"
    soon = {case.name: _answer(card, (40, "early_accuracy", "warning"))}
    assert _verdicts(card, "fresh", [case], soon)[target].state == "met"


@pytest.mark.parametrize(
    ("rows", "seconds", "state"),
    [(1000, 0.049, "met"), (1000, 0.051, "missed"), (60, 0.0029, "met"), (60, 0.006, "open")],
)
def test_the_cost_is_judged_on_long_runs(card, rows, seconds, state):
    case = _case(card, "healthy")
    answer = card("workers").Answer(alarms=[], rows=rows, seconds=seconds)
    assert _verdicts(card, "public", [case], {case.name: answer})["at most 50 µs of CPU per row"].state == state


def test_longer_runs_end_in_the_same_collapse(card):
    short, long = card("generated").lengths((250, 300), 1)[:2]
    assert [run.onsets["length"] for run in (short, long)] == [250, 300]
    assert [{**row, "step": 0} for row in long.rows[-400:]] == [{**row, "step": 0} for row in short.rows[-400:]]
    growth, answers = card("run_length").growth, {}
    cases = card("generated").lengths((250, 300), 1)
    for i, case in enumerate(cases):
        (failure, onset), lag = next(iter(case.onsets.items())), 3 if i == 1 else 1
        name = card("watchers").DETECTORS["ours"].names[failure][0]
        answers[case.name] = _answer(card, (onset + lag, name, "warning"))
    assert growth("ours", cases, answers) == 2
    answers[cases[0].name] = _answer(card)
    assert growth("ours", cases, answers) is None


def test_the_page_has_every_target_and_every_part(card):
    generated, page = card("generated"), card("page")
    size = generated.Size(steps=300, phis=(0.6,), tails=("normal",), seeds=1)
    made = generated.generated(size)
    runs = [*made[:2], *(case for case in made if case.onsets.get("length") in (40, 200))]
    data = card("targets").DataSet(title="Some", kind="generated", note="Note.", runs=runs)
    answers, late = page.ask(data, ["ours", "zscore"], 1), generated.lengths((250, 260), 1)
    lengths = late, card("workers").ask(["ours", "zscore"], late, view="all columns", processes=1, whole=True)
    text = page.page("command", 1.0, [data], [answers], lengths, {})
    assert text.startswith("# Scorecard") and "{" not in text
    for part in ("| Some | length: critical", "**met**: 2 of 2", "## At a glance", "a plain verl log", "Note."):
        assert part in text
    picture = page.picture([data], [answers], {})
    assert picture.count("<rect") == 5 and "W&amp;B z-score" in picture  # the paper and two bars of two detectors


# ---------------------------------------------------------------- run folders
def _record(folder, *, ended=True, change_at=None):
    """40 steps of two tasks with a policy that clips R4, dead from step 20 on."""
    bounds = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [1.0, 101.0]})
    relaxed = Bounds.from_wire({"pos": [0.8, 11.0], "neg": [0.0, 101.0]})
    tokens = (300, 280, 500, 400, 40, 60, 120)
    sums, zero = tuple(map(float, tokens)), (0.0,) * 7
    stats = TokenStats(
        tokens=tokens, clip_high=(6, 0, 0, 0, 0, 0, 0), clip_low=(0, 0, 0, 90, 0, 0, 0), clamped=(0,) * 7,
        ratio_sum=sums, weight_sum=sums, abs_adv_weight_sum=(*sums[:6], 0.0), signed_adv_weight_sum=zero,
        entropy_sum=sums, logp_sum=zero, log_ratio_sum=zero, log_ratio_sq_sum=zero,
    )  # fmt: skip
    recorder = Recorder(
        folder, name="run", objective="dispo", framework="regimescope", rule=WeightRule.capped(bounds),
        limits=Limits(), can=("set_bounds",), sync=True, launch="a", revision=0,
    )  # fmt: skip
    for step in range(40):
        changed = change_at is not None and step >= change_at
        recorder.buckets(step, 0, stats, revision=int(changed), bounds=relaxed if changed else bounds)
        dead = max(0, step - 19)
        values = {
            "accuracy": (max(0.0, 0.5 - 0.1 * dead + 0.01 * (step % 4)), 256.0),
            "response_length_mean": (max(1.0, 35.0 + step % 3 - 6.0 * dead), 256.0),
            "entropy_mean": (0.8, 2000.0),
        }
        recorder.step(step, values)
    if ended:
        recorder.end("finished")
    recorder.close()


def test_a_run_folder_gives_what_the_monitor_gave_its_detectors(card, tmp_path):
    _record(tmp_path / "runs" / "fresh-r4-off-s100", change_at=30)
    folders = importlib.import_module("benchmarks.detectors.run_folders")
    (run,) = folders.read_folders(tmp_path)
    assert (run.path, run.ended, len(run.steps)) == ("runs/fresh-r4-off-s100", True, 40)
    row, later = run.steps[0].metrics, run.steps[30]
    assert row["R4.clip_low_frac"] == 0.225 and row["accuracy.n"] == 256 and row["neg.w_min"] == 1
    start = run.steps[0].events[0]
    assert (start.kind, start.data["objective"], start.data["neg.w_min"]) == ("start", "dispo", 1)
    assert [event.kind for event in later.events] == ["bounds_changed"] and later.metrics["neg.w_min"] == 0
    with read_root(tmp_path) as monitor, monitor.store.cursor() as con:
        alerts = query.alerts(con, 1)
    found = folders.findings(run.steps)
    key = ("rule", "severity", "step_onset", "step_detected", "driver", "slice")
    assert sorted(str([getattr(a, name) for name in key]) for a in alerts) == sorted(
        str([getattr(f, name) for name in key]) for f in found
    )
    assert {f.signature for f in found} >= {"length_collapse", "bounds_lint"}


def test_ours_takes_events_and_slices_from_what_it_is_told(card, tmp_path):
    watcher = importlib.import_module("benchmarks.scorecard.watchers.ours").Watcher(tmp_path, "dispo")
    bounds = {"pos.w_min": 0.8, "pos.w_max": 11.0, "neg.w_min": 1.0, "neg.w_max": 101.0}
    alarms = []
    for step in range(60):
        task = {"proofs": {"response_length_mean": 300.0 if step < 40 else 4.0}}
        watcher.tell([["start", 0, {"objective": "dispo", **bounds}]] if step == 0 else [], task)
        alarms += watcher.update({"step": float(step), "response_length_mean": 300.0})
    assert {alarm.name for alarm in alarms} == {"bounds_lint", "length_collapse"}


def test_run_folders_are_labelled_and_asked_like_any_run(card, tmp_path):
    _record(tmp_path / "a" / "whole")
    _record(tmp_path / "a" / "open", ended=False)
    (tmp_path / "outcomes.csv").write_text("run,outcome\n")
    (tmp_path / "a" / "whole" / "lab.json").write_text('{"arm": "r4-off", "condition": "stale", "seed": 100}')
    unfinished, whole = card("cases").lab(tmp_path)
    assert (unfinished.name, unfinished.state, unfinished.onsets) == ("a/open", "unclear", {})
    assert (whole.name, whole.state, whole.objective) == ("a/whole", "failed", "dispo")
    assert 20 <= whole.onsets["length"] <= 24
    assert card("report").arms([unfinished, whole]) == "Failed, by arm: stale r4-off 1 of 1."
    run = card("workers").described(whole, "all columns", False)
    answer = card("worker").watch("ours", [json.loads(json.dumps(run))])["a/whole"]
    names = {name for _, name, _ in answer["alarms"]}
    assert {"length_collapse", "bounds_lint"} <= names  # the lint needs the declared bounds
    assert "told" not in card("workers").described(whole, "log columns only", False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(importlib.import_module("benchmarks._runs").BenchmarkError, match="run folders"):
        card("cases").lab(tmp_path / "empty")
