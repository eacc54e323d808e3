"""`regimescope runs`: one line a run, beside a running server too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regimescope.monitor import runs
from regimescope.monitor.errors import RunError
from regimescope.monitor.store import Store


def test_the_list_names_status_last_step_verdict_and_open_alerts(collapsed, root: Path, capsys) -> None:
    owner = Store.open(root)  # a server owns the index: the list does not need it
    assert runs.main([str(root)]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "status", "last", "step", "verdict", "open", "alerts"]
    assert line.split()[:3] == ["run", "ended", "39"]
    assert "ENDED, COLLAPSING" in line and "critical length_collapse" in line
    owner.close()


def test_json_has_the_same(collapsed, root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("REGIMESCOPE_ROOT", str(root))
    assert runs.main(["--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert set(line) == {"path", "status", "last_step", "verdict", "alerts"}
    assert (line["path"], line["status"], line["last_step"]) == ("run", "ended", 39)


def test_an_empty_root_says_so_and_a_missing_one_is_a_mistake(root: Path, capsys) -> None:
    assert runs.main([str(root)]) == 0
    assert capsys.readouterr().out == f"no runs below {root}\n"
    with pytest.raises(RunError, match="no folder"):
        runs.main([str(root / "missing")])
