"""`regimescope doctor`: every finding from real folders, files and processes; none on a sound root."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from regimescope.monitor import doctor
from regimescope.monitor.endpoint import Endpoint, write_endpoint
from regimescope.monitor.errors import RunError
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store, index_path

OWN = "import sys; from regimescope.monitor.store import Store; s = Store.open(sys.argv[1]); print('open', flush=True)"


def found(root: Path, topic: str) -> list[doctor.Finding]:
    return [f for f in doctor.examine(root) if f.topic == topic]


def warned(root: Path, topic: str) -> list[doctor.Finding]:
    """All of them have advice."""
    warnings = [f for f in found(root, topic) if f.level == "warning"]
    assert all(f.advice and "\n" not in f.text + f.advice for f in warnings)
    return warnings


def segment(root: Path) -> Path:
    (path,) = (root / "run" / "segments").iterdir()
    return path


@pytest.fixture
def other_owner(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the index open, as a server or a notebook has."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OWN + "; sys.stdin.read()", str(root)], **pipes) as process:
        assert process.stdout.readline() == "open\n"
        yield process
        process.stdin.close()


class Health(http.server.BaseHTTPRequestHandler):
    told: dict[str, object] | None = None

    def do_GET(self) -> None:
        asked = self.path == "/api/health" and self.headers["x-regimescope-token"] == "abc"
        self.send_response(200)
        self.end_headers()
        if asked and self.told is not None:
            self.wfile.write(json.dumps(self.told).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(root: Path) -> Iterator[Endpoint]:
    """Something that answers the health route, named in the endpoint file."""
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        endpoint = Endpoint(host="127.0.0.1", port=http_server.server_port, pid=42, started=time.time(), token="abc")
        write_endpoint(root, endpoint)
        yield endpoint
        http_server.shutdown()


def test_a_sound_root_has_no_warning_but_of_the_disk(collapsed, root: Path, capsys) -> None:
    before = sorted(p.relative_to(root) for p in root.rglob("*"))
    code = doctor.main([str(root), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [f for f in report if f["level"] == "warning" and f["topic"] != "disk"] == []
    assert code == int(any(f["level"] == "warning" for f in report))
    assert {"versions", "owner", "lag", "runs", "disk"} <= {f["topic"] for f in report}
    assert all(set(f) == {"level", "topic", "text", "advice"} for f in report)
    assert sorted(p.relative_to(root) for p in root.rglob("*")) == before and not index_path(root).exists()


def test_text_has_a_line_per_finding_and_one_of_advice(collapsed, root: Path, capsys) -> None:
    (root / "run" / "control").mkdir(exist_ok=True)
    (root / "run" / "control").chmod(0o777)
    assert doctor.main([str(root)]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("warning  permissions: run/control can be written"))
    assert lines[at + 1].strip() == f"-> chmod 700 {root / 'run' / 'control'}"


def test_versions_name_the_packages_and_another_duckdb() -> None:
    (fine,) = doctor.versions({"duckdb": "2.0.1", "streamlit": "1.70"})
    assert "duckdb 2.0.1" in fine.text and "streamlit 1.70" in fine.text and "regimescope " in fine.text
    assert [f.level for f in doctor.versions({"duckdb": "3.0.0"})] == ["ok", "warning"]
    assert [f.level for f in doctor.versions({"duckdb": "20.0"})] == ["ok", "warning"]


def test_a_server_that_answers_is_the_owner(collapsed, root: Path, other_owner, server: Endpoint) -> None:
    (owner,) = found(root, "owner")
    assert (owner.level, server.address in owner.text) == ("ok", True)
    (lag,) = found(root, "lag")
    assert "only the owner" in lag.text and lag.level == "note"


def test_a_server_tells_how_far_behind_it_is(
    collapsed, root: Path, other_owner, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"path": "run", "unread_bytes": 120, "lag_s": 0.2}
    sound = {"degraded": None, "tick_age_s": 0.1, "unread_bytes": 120, "runs": [run]}
    monkeypatch.setattr(Health, "told", sound)
    (lag,) = found(root, "lag")
    assert lag.level == "ok" and "120 bytes" in lag.text and found(root, "store") == []
    monkeypatch.setattr(Health, "told", {**sound, "runs": [{**run, "lag_s": 90.0, "unread_bytes": 3_000_000}]})
    (late,) = warned(root, "lag")
    assert "run: 3.0 MB not read yet, for up to 2 min" in late.text
    monkeypatch.setattr(Health, "told", {**sound, "tick_age_s": 60.0})
    assert "has not finished a look at the segments for 1 min" in warned(root, "store")[0].text
    state = {"reason": "No space left on device", "since": time.time() - 120}
    monkeypatch.setattr(Health, "told", {**sound, "degraded": state, "tick_age_s": 120.0})
    (broken,) = warned(root, "store")
    assert "store degraded for 2 min: No space left on device" in broken.text and "free space" in broken.advice
    monkeypatch.setattr(Health, "told", {"degraded": "?", "runs": 7, "tick_age_s": "x"})  # not what we know
    assert [f.level for f in found(root, "lag")] == ["ok"]


def test_an_endpoint_without_a_server_is_stale(root: Path) -> None:
    write_endpoint(root, Endpoint(host="127.0.0.1", port=1, pid=4242, started=1.0, token="abc"))
    (owner,) = warned(root, "owner")
    assert "nothing answers" in owner.text and "4242" in owner.text


def test_a_server_on_another_host_is_no_fault(root: Path) -> None:
    write_endpoint(root, Endpoint(host="127.0.0.1", port=1, pid=4242, started=1.0, token="abc", machine="far-away"))
    (owner,) = found(root, "owner")
    assert owner.level == "note" and "far-away" in owner.text


def test_a_process_without_an_endpoint_holds_the_index(root: Path, other_owner) -> None:
    (owner,) = warned(root, "owner")
    assert f"process {other_owner.pid} holds" in owner.text


def test_an_index_of_another_program_is_told(root: Path) -> None:
    index_path(root).parent.mkdir(parents=True)
    index_path(root).write_text("not a database")
    (owner,) = warned(root, "owner")
    assert "none of ours" in owner.text and "moves it aside" in owner.advice
    assert index_path(root).read_text() == "not a database"
    index_path(root).unlink()
    with duckdb.connect(str(index_path(root))) as con:
        con.execute("CREATE TABLE theirs (a INTEGER)").fetchall()
    (owner,) = warned(root, "owner")
    assert "none of ours" in owner.text


def test_an_index_of_another_version_is_told(root: Path) -> None:
    Store.open(root).close()
    with duckdb.connect(str(index_path(root))) as con:
        con.execute("UPDATE meta SET schema_hash = 'old'").fetchall()
    assert any(f.level == "note" and "rebuilds" in f.advice for f in found(root, "owner"))


def test_lag_is_what_the_offsets_lack(collapsed, root: Path) -> None:
    assert "no index to read yet" in found(root, "lag")[0].text
    monitor = Monitor(root, store=Store.open(root))
    monitor.catch_up()
    monitor.stop()
    size = segment(root).stat().st_size
    assert f"0 bytes of {size} " in found(root, "lag")[0].text
    with open(segment(root), "a") as file:
        file.write(" \n")
    assert f"2 bytes of {size + 2} " in found(root, "lag")[0].text


def test_lost_and_bad_lines_are_counted_per_run(collapsed, root: Path) -> None:
    lines = segment(root).read_text().splitlines(keepends=True)
    dropped = json.dumps({"v": 1, "k": "event", "q": 3, "t": time.time(), "kind": "dropped", "data": {"records": 2}})
    segment(root).write_text("".join([lines[0], dropped + "\n", "no line\n", *lines[4:]]))
    lost, bad = sorted(warned(root, "losses"), key=lambda f: "could not be read" in f.text)
    assert lost.text == "run: records missing: 2 dropped by the recorder, as it says itself"
    assert bad.text.startswith("run: 1 lines could not be read, in r00000-")
    assert f"first at byte {len(lines[0]) + len(dropped) + 1} of r00000-" in bad.text and "not a JSON line" in bad.text


def test_a_newer_wire_version_is_refused(collapsed, root: Path) -> None:
    segment(root).write_text(segment(root).read_text().replace('"v":1', '"v":99'))
    (refused,) = warned(root, "segments")
    assert "wire version 99" in refused.text


def test_disk_warns_below_a_gibibyte_or_five_percent(tmp_path: Path) -> None:
    gib = 1 << 30
    levels = [doctor.disk("root", tmp_path, (total, 0, free)).level for total, free in [
        (10 * gib, gib), (10 * gib, gib - 1), (100 * gib, 5 * gib), (100 * gib, 4 * gib),
    ]]  # fmt: skip
    assert levels == ["ok", "warning", "ok", "warning"]


def test_clocks_ahead_and_behind(collapsed, root: Path) -> None:
    now = segment(root).stat().st_mtime
    assert list(doctor.clocks(root, now + 60)) == []
    (ahead,) = doctor.clocks(root, now - 7200)
    assert ahead.level == "warning" and "2 h in the future" in ahead.text
    os.utime(segment(root), (now + 7200, now + 7200))
    (behind,) = doctor.clocks(root, now + 7200)
    assert behind.level == "warning" and "2 h older than the file" in behind.text
    (copied,) = doctor.clocks(root, now + 86400)
    assert copied.level == "note"


def test_a_folder_that_cannot_be_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(doctor.permissions(root)) == []
    monkeypatch.chdir(root)  # the folders above may be closed to another user
    uid = os.geteuid()
    root.chmod(0o555)
    try:
        if uid == 0:  # for root every folder can be written
            os.seteuid(65534)
        (finding,) = doctor.permissions(Path("."))
    finally:
        os.seteuid(uid)
        root.chmod(0o755)
    assert finding.level == "warning" and "cannot be written" in finding.text


def test_a_control_folder_for_its_owner_alone_is_fine(collapsed, root: Path) -> None:
    (root / "run" / "control").mkdir(exist_ok=True)
    (root / "run" / "control").chmod(0o700)
    assert warned(root, "permissions") == []
    (root / "run" / "control").rmdir()
    (root / "run" / "control").symlink_to(root)
    assert "no folder, or a link" in warned(root, "permissions")[0].text


def test_a_run_without_an_end_line_that_fell_silent(trainer, root: Path) -> None:
    recorder = trainer.open()
    trainer.step(recorder, 0)
    recorder.close()
    assert warned(root, "runs") == []
    old = time.time() - 7200
    os.utime(segment(root), (old, old))
    (silent,) = warned(root, "runs")
    assert "run: no end line, last written 2 h ago" in silent.text


def test_an_old_run_with_an_end_line_is_fine(collapsed, root: Path) -> None:
    old = time.time() - 7200
    os.utime(segment(root), (old, old))
    assert warned(root, "runs") == []


def test_a_missing_root_is_a_mistake(root: Path) -> None:
    with pytest.raises(RunError, match="no folder"):
        doctor.main([str(root / "missing")])
