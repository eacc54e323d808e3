"""Recorded runs of our own trainers and of other people, with the alerts expected from them."""

import pytest

HEALTHY = (
    "dispo_A_s0", "dispo_A_lr5e-4_s0", "dispo_B_st4_s0", "cispo_A_s0", "m_dispo_s0", "m_r3off_s0", "public_trl_flat",
    "public_trl_shortening", "public_verl_maze",
)  # fmt: skip


def test_alerts_are_those_recorded(golden):
    """Same alerts with the same driver and bound, each inside its window. `python -m benchmarks.detectors.golden`
    shows the difference."""
    found = sorted(alert for path in golden.traces() for alert in golden.alerts(path))
    known = sorted(golden.expected())
    assert [row(alert) for alert in found] == [row(alert) for alert in known]
    for alert, other in zip(found, known, strict=True):
        assert other.first <= alert.first + golden.WINDOW <= other.last or alert.first == other.first == 0, alert


def row(alert):
    return alert.run, alert.rule, alert.signature, alert.severity, alert.driver, alert.bound


@pytest.mark.parametrize("name", HEALTHY)
def test_hard_negatives(golden, name):
    warnings = [alert for alert in golden.expected() if alert.run == name and alert.signature != "bounds_lint"]
    assert (golden.FOLDER / f"{name}.csv").exists() and warnings == []


@pytest.mark.parametrize(
    ("name", "signature", "before"),
    [
        ("r4off_A_lr4e-4_s0", "length_collapse", 13),
        ("r4off_B_st4_s0", "repetition_collapse", 17),
        ("r4off_A_s0", "length_collapse", 53),
    ],
)
def test_collapses_name_r4_and_its_bound(golden, given_runs, name, signature, before):
    rows = given_runs.read_rows(golden.FOLDER / f"{name}.csv")
    found = next(f for f in given_runs.replay(rows, "dispo") if f.signature == signature)
    assert (found.severity, found.driver, found.inhibited_by) == ("critical", "R4", None)
    assert (found.remedy.bound, found.remedy.direction, found.remedy.target) == ("neg.w_min", "lower", 0)
    assert found.step_detected <= before and found.evidence["R4.clip_low_frac"] > 0.1


@pytest.mark.parametrize(("name", "half"), [("r4off_A_lr4e-4_s0", 3), ("r4off_A_s0", 20), ("r4off_B_st4_s0", 10)])
def test_a_warning_comes_before_accuracy_is_half_gone(golden, given_runs, name, half):
    rows = given_runs.read_rows(golden.FOLDER / f"{name}.csv")
    assert given_runs.accuracy_half(rows) == half
    found = [f for f in given_runs.replay(rows, "dispo") if f.severity != "info" and f.signature != "bounds_lint"]
    assert min(f.step_detected for f in found) < half
