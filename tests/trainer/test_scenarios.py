"""Each scenario does what it is for: a short real run and its alerts. `./dev bench scenarios` is the long form."""

import json
from pathlib import Path
from typing import Any

import pytest

from regimescope.cli import main as cli


def alerts(run_dir: Path, capsys: pytest.CaptureFixture[str], *options: str, code: int) -> list[dict[str, Any]]:
    """Train, then check; `code` is the exit code that `regimescope check` must have."""
    assert cli(["train", "--run-dir", str(run_dir), "--set", "evaluation.every=0", *options]) == 0
    capsys.readouterr()
    assert cli(["check", str(run_dir), "--json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["alerts"]
    return found


@pytest.mark.parametrize(("scenario", "seed", "steps"), [("length-collapse", 2, 20), ("repetition-collapse", 1, 20)])
def test_a_collapse_becomes_critical_and_names_r4(
    scenario: str, seed: int, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--scenario", scenario, "--seed", str(seed), "--steps", str(steps)]
    found = alerts(tmp_path / "run", capsys, *options, code=1)
    (named,) = [alert for alert in found if alert["signature"] == scenario.replace("-", "_")]
    assert (named["severity"], named["driver"]) == ("critical", "R4")
    assert (named["remedy"]["bound"], named["remedy"]["target"]) == ("neg.w_min", 0.0)


def test_a_healthy_run_raises_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = alerts(tmp_path / "run", capsys, "--scenario", "healthy", "--seed", "1", "--steps", "20", code=0)
    assert [alert for alert in found if alert["severity"] != "info"] == []
