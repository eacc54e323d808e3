"""The scorecard counts what it says: found, lag, lead, false alarms, bound; and it reads the logs of others."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

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


def test_close_alarms_are_one_and_unclear_runs_count_nothing(card):
    score = card("score")
    healthy, unclear = _case(card, "healthy"), _case(card, "unclear")
    alarms = [(10, "a", "warning"), (29, "b", "critical"), (49, "a", "warning")]
    answers = {case.name: _answer(card, *alarms) for case in (healthy, unclear)}
    false = score.false_alarms([healthy, unclear], answers)
    assert (false.episodes, false.critical, false.steps) == (2, 1, 100)
    assert false.rate == 20 and false.bound > false.rate


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
        "grad_norm": 1.0,
        "kl_step": 0.1,
        "kl_ref": 0.1,
        "R4.ratio_mean": 1.0,
        "neg.w_min": 0.0,
    }
    case = card("cases").Case(name="x", objective="", rows=[row], state="healthy", onsets={}, halved=None)
    assert card("cases").log_columns(case) == [{"step": 1.0, "accuracy": 0.5}]


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
