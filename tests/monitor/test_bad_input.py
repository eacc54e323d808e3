"""Each bad input: what the user is told, that the other lines and runs go on, that every good row is there. A full disk
is in test_chaos.py, a database of another program in test_store.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regimescope.monitor import check, doctor, query, runs, segments
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
from regimescope.monitor.troubles import Trouble, troubles

NAME = "r00000-100-1-0000.jsonl"


def header(q: int = 0, **more: object) -> bytes:
    declared = {"run": "r", "launch": "a", "role": "trainer", "rank": 0, "ranks": 1, "part": 0, "first_step": 0}
    return line("header", q, **{**declared, **more})


def line(kind: str, q: int, /, **fields: object) -> bytes:
    return json.dumps({"v": 1, "k": kind, "q": q, "t": 1790000000.0 + q, **fields}).encode() + b"\n"


def steps(first: int, last: int, value: float = 0.5, *, before: int = 0) -> bytes:
    """The step lines of `first` to `last`; line number = step + 1 - before."""
    return b"".join(line("step", s + 1 - before, s=s, m={"accuracy": value}) for s in range(first, last + 1))


def write(root: Path, data: bytes, *, run: str = "run", name: str = NAME) -> Path:
    """Append to a segment."""
    path = root / run / "segments" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    return path


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    """An index of the root in memory."""
    store = Store.in_memory(root)
    yield store
    store.close()


@pytest.fixture
def healthy(root: Path) -> Callable[[Store], None]:
    """A run beside the bad one; the function checks that it is whole."""
    write(root, header() + steps(0, 9), run="beside")

    def verify(store: Store) -> None:
        assert done(store, "beside") == list(range(10))

    return verify


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.cursor() as con:
        return con.execute(sql).fetchall()


def done(store: Store, run: str = "run") -> list[object]:
    """The steps of a run that count."""
    sql = f"SELECT step FROM v_metric JOIN run USING (run_key) WHERE path = '{run}' AND v_metric.name = 'accuracy'"
    return [step for (step,) in rows(store, f"{sql} ORDER BY step")]


def told(store: Store, run: str = "run") -> list[Trouble]:
    with store.cursor() as con:
        found = query.run_by_path(con, run)
        assert found is not None
        return troubles(con, found.run_key)


def events(store: Store, kind: str) -> list[dict[str, object]]:
    sql = f"SELECT payload FROM event WHERE kind = '{kind}' ORDER BY (payload->>'$.offset')::BIGINT"
    return [json.loads(str(text)) for (text,) in rows(store, sql)]


def warnings_of(root: Path) -> str:
    return "\n".join(f"{f.text} -> {f.advice}" for f in doctor.examine(root) if f.level == "warning")


# -- ends of files --


def test_a_torn_tail_is_no_record_and_costs_none(root: Path, store: Store, healthy) -> None:
    path = write(root, header() + steps(0, 4) + steps(5, 5)[:-9])
    Ingester(store).catch_up()
    assert done(store) == [0, 1, 2, 3, 4] and told(store) == []
    healthy(store)
    old = time.time() - 7200
    os.utime(path, (old, old))
    (tail,) = [f for f in doctor.examine(root) if "line without end" in f.text]
    assert tail.level == "note" and f"{len(steps(5, 5)) - 9} bytes" in tail.text and "never acknowledged" in tail.advice


def test_a_nul_tail_waits_and_a_nul_gap_that_stays_is_a_bad_line(root: Path, store: Store, healthy) -> None:
    path = write(root, header() + steps(0, 1) + b"\0" * 300)
    ingester = Ingester(store)
    ingester.catch_up()
    assert done(store) == [0, 1] and told(store) == []
    write(root, b"\n" + steps(3, 4))
    ingester.catch_up()
    assert done(store) == [0, 1]  # it may still arrive: NFS fills such pages later
    old = time.time() - segments.SETTLED_S - 1
    os.utime(path, (old, old))
    ingester.catch_up()
    assert done(store) == [0, 1, 3, 4]
    (where,) = events(store, "bad_line")
    assert where["offset"] == len(header() + steps(0, 1)) and "never written" in str(where["reason"])
    assert rows(store, "SELECT bad_lines, lost FROM segment WHERE run_key = 2") == [(1, 0)]
    healthy(store)


def test_nul_bytes_that_are_filled_in_later_cost_nothing(root: Path, store: Store) -> None:
    data = header() + steps(0, 5)
    cut = len(header()) + 20
    path = write(root, data[:cut] + b"\0" * 150 + data[cut + 150 :])
    ingester = Ingester(store)
    ingester.catch_up()
    assert done(store) == []
    path.write_bytes(data)
    ingester.catch_up()
    assert done(store) == [0, 1, 2, 3, 4, 5] and told(store) == []


# -- files that are no longer what they were --


def shorter(path: Path) -> None:
    os.truncate(path, len(header() + steps(0, 2)))


def emptied_and_longer(path: Path) -> None:
    path.write_bytes(header(launch="other") + steps(0, 2) + steps(3, 9, 0.25) + steps(10, 19))


def same_size(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7"))


def renamed_over(path: Path) -> None:
    """As an editor or a restore does: another file of that name, of the same size and times."""
    before = path.stat()
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes().replace(b"0.5", b"0.7"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("damage", [shorter, emptied_and_longer, same_size, renamed_over])
def test_a_segment_that_was_shortened_or_replaced_is_read_again(
    root: Path, store: Store, healthy, differing, damage: Callable[[Path], None], restarted: bool
) -> None:
    path = write(root, header() + steps(0, 9))
    ingester = Ingester(store)
    ingester.catch_up()
    damage(path)
    if restarted:
        ingester = Ingester(store)
    ingester.catch_up()
    fresh = Store.in_memory(root)
    Ingester(fresh).catch_up()
    assert differing(store, fresh) == {}
    fresh.close()
    healthy(store)
    (why,) = ingester.problems.values()
    assert "shortened or replaced" in why and "restore" in why
    write(root, steps(20, 20))  # and it goes on
    ingester.catch_up()
    assert 20 in done(store)
    assert ingester.tick() == set()


def test_a_touched_or_copied_file_of_the_same_content_is_not_read_again(root: Path, store: Store) -> None:
    path = write(root, header() + steps(0, 9))
    ingester = Ingester(store)
    ingester.catch_up()
    os.utime(path)
    assert ingester.tick() == set()
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)
    assert ingester.tick() == set() and ingester.problems == {}


# -- two writers --


def test_two_processes_with_one_rank_and_launch_count_once(root: Path, store: Store, healthy) -> None:
    other = "r00000-200-2-0000.jsonl"
    ingester = Ingester(store)
    write(root, header())
    for s in range(6):
        write(root, steps(s, s, 0.1))
        if s == 0:
            write(root, header(), name=other)
        write(root, steps(s, s, 0.9), name=other)
        ingester.tick()
    assert rows(
        store, "SELECT step, value, n FROM v_metric JOIN run USING (run_key) WHERE path = 'run' ORDER BY step"
    ) == [(s, 0.9, 1) for s in range(6)]
    assert (
        rows(store, "SELECT complete, ranks_seen FROM v_step JOIN run USING (run_key) WHERE path = 'run'")
        == [(True, 1)] * 6
    )
    assert rows(store, "SELECT count(*) FROM scalar JOIN run USING (run_key) WHERE path = 'run'") == [(12,)]  # kept
    (trouble,) = told(store)
    assert trouble.kind == "duplicate_rank"
    assert trouble.text == f"launch 'a' has rank 0 twice: {NAME} and {other}"
    assert "rank= and ranks=" in trouble.advice
    assert "two processes write as rank 0" in ingester.problems["run"]
    assert trouble.text in warnings_of(root)
    healthy(store)


def test_a_restart_under_the_same_launch_id_is_a_launch_that_supersedes(root: Path, store: Store) -> None:
    for rank in (0, 1):
        write(root, header(rank=rank, ranks=2) + steps(0, 5, 0.1), name=f"r{rank:05d}-100-{rank}-0000.jsonl")
    for rank in (0, 1):
        data = header(rank=rank, ranks=2, first_step=3, start="resume") + steps(3, 8, 0.9, before=3)
        write(root, data, name=f"r{rank:05d}-200-{rank + 5}-0000.jsonl")
    ingester = Ingester(store)
    ingester.catch_up()
    assert rows(store, "SELECT launch_no, launch_id, ranks, superseded_from FROM launch ORDER BY launch_no") == [
        (0, "a", 2, 3), (1, "a", 2, None),
    ]  # fmt: skip
    assert rows(store, "SELECT step, value, n FROM v_metric ORDER BY step") == [
        (s, 0.1 if s < 3 else 0.9, 2) for s in range(9)
    ]
    assert ingester.problems == {}  # only the newer one grows
    assert [t.kind for t in told(store)] == ["duplicate_rank"]


FORGETFUL = """
import sys
from regimescope.monitor import Recorder
with Recorder(sys.argv[1], sync=True) as recorder:
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(5):
        recorder.step(step, {"accuracy": float(sys.argv[2])})
    print("done", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def forgetful(root: Path, number: int) -> Iterator[subprocess.Popen[str]]:
    """A rank whose launcher forgot `rank=`."""
    command = [sys.executable, "-c", FORGETFUL, str(root / "run"), str(number)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        yield child
        child.communicate("\n")
        assert child.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_ranks_that_do_not_know_their_rank_are_told_apart(root: Path, store: Store, capsys) -> None:
    with forgetful(root, 0) as first, forgetful(root, 1) as second:
        for child in (first, second):
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "done\n"
    Ingester(store).catch_up()
    # One of them counts, whole; the other's rows are there and superseded.
    assert rows(store, "SELECT step, value, n FROM v_metric ORDER BY step") == [(s, 1.0, 1) for s in range(5)]
    assert rows(store, "SELECT count(*) FROM scalar") == [(10,)]
    (trouble,) = told(store)
    assert trouble.kind == "second_writer" and "two processes write as rank 0" in trouble.text
    assert trouble.text in warnings_of(root)
    check.main([str(root / "run")])
    assert "two processes write as rank 0" in capsys.readouterr().out.replace("\n    ", " ")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_starts_one_after_the_other_and_ranks_side_by_side_are_no_rivals(trainer, root: Path, store: Store) -> None:
    with trainer.open(rank=0, ranks=2) as zero, trainer.open(rank=1, ranks=2) as one:
        zero.step(0, {"accuracy": 0.5})
        one.step(0, {"accuracy": 0.5})
    with forgetful(root, 0):
        pass
    with trainer.open(launch="b", start="resume", first_step=1) as resumed:
        resumed.step(1, {"accuracy": 0.5})
    Ingester(store).catch_up()
    assert events(store, "second_writer") == [] and told(store) == []


# -- lines --


def test_a_line_of_invalid_utf8_is_located_and_its_neighbours_are_stored(root: Path, store: Store, healthy) -> None:
    before = header() + steps(0, 3)
    write(root, before + line("step", 5, s=4, m={}).replace(b'"step"', b'"st\xff\xfe\x1b[31mep"') + steps(5, 6))
    Ingester(store).catch_up()
    assert done(store) == [0, 1, 2, 3, 5, 6]
    (where,) = events(store, "bad_line")
    assert (where["file"], where["offset"]) == (NAME, len(before)) and "not a JSON line" in str(where["reason"])
    assert "st\\xff\\xfe\\x1b[31mep" in str(where["text"])  # nothing that a terminal obeys
    assert rows(store, "SELECT bad_lines, lost FROM segment WHERE run_key = 2") == [(1, 0)]
    (trouble,) = told(store)
    assert f"1 lines could not be read, in {NAME}; first at byte {len(before)} of {NAME}" in trouble.text
    healthy(store)


def test_a_file_of_garbage_does_not_fill_the_index(root: Path, store: Store, healthy) -> None:
    write(root, header() + b"".join(b"garbage %d\n" % i for i in range(5000)) + steps(0, 2))
    ingester = Ingester(store)
    ingester.catch_up()
    assert [e["text"] for e in events(store, "bad_line")] == [f"garbage {i}" for i in range(10)]
    assert rows(store, "SELECT bad_lines, lost FROM segment WHERE run_key = 2") == [(5000, 0)]
    assert done(store) == [0, 1, 2]
    healthy(store)


def test_losses_are_told_by_who_knows_of_them(root: Path, store: Store) -> None:
    dropped = {"kind": "dropped", "data": {"records": 3, "reason": "queue full"}}
    data = header() + steps(0, 0) + line("event", 5, **dropped) + steps(5, 5) + steps(9, 9) + steps(10, 10)
    write(root, data)
    Ingester(store).catch_up()
    assert rows(store, "SELECT lost, dropped, holes FROM segment") == [(6, 3, 1)]
    assert events(store, "lost") == [
        {"file": NAME, "offset": data.index(steps(9, 9)), "from": 7, "to": 9, "records": 3}
    ]
    (trouble,) = told(store)
    assert trouble.text == (
        "records missing: 3 dropped by the recorder, as it says itself; 3 not in the files, and nobody says why, "
        f"first numbers 7 to 9 of {NAME}"
    )


MEASURE = """
import resource, sys
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
store = Store.in_memory(sys.argv[1])
ingester = Ingester(store, only=["beside"])
ingester.catch_up()
before = peak()
ingester = Ingester(store)
ingester.catch_up()
with store.cursor() as con:
    found = con.execute("SELECT count(*) FROM step_done JOIN run USING (run_key) WHERE path = 'run'").fetchall()
print(before, peak(), found[0][0])
store.close()
"""


def test_a_line_of_100_mb_is_passed_over_in_bounded_memory(root: Path, store: Store, healthy) -> None:
    before = header() + steps(0, 3)
    path = write(root, before + b'{"v":1,"k":"step","q":5,"s":4,"m":{"')
    with path.open("ab") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
    write(root, b'":1}}\n' + steps(5, 9))
    done_ = subprocess.run([sys.executable, "-c", MEASURE, str(root)], capture_output=True, text=True, check=True)
    small, peak, count = map(int, done_.stdout.split())
    assert count == 9
    assert peak - small < 60, f"{peak - small} MiB more at the peak"
    Ingester(store).catch_up()
    assert done(store) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    (where,) = events(store, "bad_line")
    assert (where["offset"], where["reason"]) == (len(before), "over 16 MiB in one line")
    assert str(where["text"]).startswith('{"v":1,"k":"step","q":5,') and len(str(where["text"])) < 100
    assert rows(store, "SELECT bad_lines, lost FROM segment WHERE run_key = 2") == [(1, 0)]
    healthy(store)


def test_a_line_that_never_ends_holds_up_nothing(
    root: Path, store: Store, healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(segments, "MAX_LINE_BYTES", 16_000)
    path = write(root, header() + steps(0, 3) + b"x" * 50_000)
    ingester = Ingester(store)
    ingester.catch_up()
    looked: list[int] = []
    pread = os.pread

    def spy(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        looked.append(len(data))
        return data

    monkeypatch.setattr(segments.os, "pread", spy)
    ingester.tick()
    assert sum(looked) < 10_000  # the 50 kB that are known to hold no end are not read again
    monkeypatch.undo()
    write(root, header(q=4, part=1) + steps(4, 6), name=NAME.replace("0000.jsonl", "0001.jsonl"))
    ingester.catch_up()
    assert done(store) == [0, 1, 2, 3, 4, 5, 6] and told(store) == []
    healthy(store)
    assert path.stat().st_size > 50_000


# -- folders --


READ_ONLY = """
import os, sys
from pathlib import Path
from regimescope.monitor import query
from regimescope.monitor.endpoint import Endpoint, read_endpoint, remove_endpoint, write_endpoint
from regimescope.monitor.errors import ControlError
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store
os.chdir(sys.argv[1])
root = Path("root")                      # the folders above may be closed to another user
os.environ["REGIMESCOPE_CACHE"] = "nobody"
store = Store(root, None)
monitor = Monitor(root, store=store)
if os.geteuid() == 0:
    os.seteuid(65534)
ep = Endpoint(host="127.0.0.1", port=1, pid=os.getpid(), started=0.0, token="secret")
path = write_endpoint(root, ep)
print(path.is_relative_to("nobody"), oct(path.stat().st_mode & 0o777), read_endpoint(root) == ep)
monitor.root = store.root = root
monitor.catch_up()
with monitor.store.cursor() as con:
    (run,) = query.list_runs(con)
    alert = query.alerts(con, run.run_key)[0].alert_id
monitor.requests.mark(run.run_key, kind="acknowledge", alert_id=alert, by="ana")
monitor.tick()
with monitor.store.cursor() as con:
    print(run.status, [a.mark_actor for a in query.alerts(con, run.run_key) if a.alert_id == alert])
try:
    monitor.requests.submit(run.run_key, kind="pause", args={}, expect=0, by="ana", why="")
except ControlError as error:
    print(error)
remove_endpoint(root, ep)
print(read_endpoint(root), list(Path("root/run/segments").glob("monitor*")))
monitor.stop()
"""


def test_a_root_that_cannot_be_written_is_shown_and_marked_but_not_steered(trainer, root: Path, tmp_path: Path) -> None:
    recorder = trainer.open()
    for step in range(40):
        trainer.step(recorder, step, **trainer.collapsing(step))
    (root / "run" / "control").mkdir(exist_ok=True)
    cache = tmp_path / "nobody"
    cache.mkdir()
    cache.chmod(0o777)
    tmp_path.chmod(0o755)
    folders = [root / "run" / "control", root / "run" / "segments", root / "run", root]
    for folder in folders:
        folder.chmod(0o555)
    try:
        code = [sys.executable, "-c", READ_ONLY, str(tmp_path)]
        done_ = subprocess.run(code, capture_output=True, text=True)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    recorder.close()
    assert done_.returncode == 0, done_.stderr
    published, marked, steered, left = done_.stdout.splitlines()
    assert published == "True 0o600 True" and marked == "running ['ana']"
    assert "cannot be written" in steered and left == "None []"


def test_a_copied_run_folder_is_a_run_of_its_own_with_its_own_marks_and_alerts(collapsed, root: Path, watch) -> None:
    mark = {"id": "0199a3c4-81aa-7000-8000-0000000000b2", "by": "ana", "kind": "note", "text": "hm"}
    monitor_header = line("header", 0, run="r", role="monitor", part=0)
    write(root, monitor_header + line("mark", 1, **mark), name="monitor-1-1-0000.jsonl")
    shutil.copytree(root / "run", root / "copy")
    monitor = watch()
    monitor.catch_up()
    with monitor.store.cursor() as con:
        found = {run.path: run.run_key for run in query.list_runs(con)}
        alerts = [{a.alert_id for a in query.alerts(con, key)} for key in found.values()]
        notes = [[n.text for n in query.notes(con, key)] for key in found.values()]
    assert set(found) == {"run", "copy"} and notes == [["hm"], ["hm"]]
    assert len(alerts[0]) == len(alerts[1]) > 0 and not alerts[0] & alerts[1]


def test_links_are_not_followed_and_that_is_said(root: Path, tmp_path: Path, store: Store, healthy, capsys) -> None:
    write(tmp_path, header() + steps(0, 3), run="elsewhere")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "half").mkdir()
    (root / "half" / "segments").symlink_to(tmp_path / "elsewhere" / "segments")
    (root / "beside" / "segments" / "r00001-1-1-0000.jsonl").symlink_to(tmp_path / "elsewhere" / "segments" / NAME)
    (root / "harmless").symlink_to(tmp_path)
    ingester = Ingester(store)
    ingester.catch_up()
    assert set(ingester.problems) == {"linked", "half/segments", "beside/segments/r00001-1-1-0000.jsonl"}
    assert all("link" in why and "serve the folder" in why for why in ingester.problems.values())
    healthy(store)
    assert runs.main([str(root)]) == 0
    out, err = capsys.readouterr()
    assert "beside" in out and "not read: linked: a link, which is not followed" in err
    assert "linked: a link" in warnings_of(root)


def test_what_is_no_file_is_named_and_not_waited_for(root: Path, store: Store, healthy) -> None:
    write(root, header() + steps(0, 3))
    os.mkfifo(root / "run" / "segments" / "r00001-100-1-0000.jsonl")
    (root / "run" / "segments" / "r00002-100-1-0000.jsonl").mkdir()
    ingester = Ingester(store)
    ingester.catch_up()
    assert done(store) == [0, 1, 2, 3]
    assert sorted(ingester.problems) == [f"run/segments/r0000{i}-100-1-0000.jsonl" for i in (1, 2)]
    assert all("no regular file" in why for why in ingester.problems.values())
    healthy(store)


AS_NOBODY = """
import os, sys
from pathlib import Path
from regimescope.monitor import runs
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
os.chdir(sys.argv[1])                    # the folders above may be closed to another user
store = Store.in_memory(".")
if os.geteuid() == 0:                    # for root every file can be read and written
    os.seteuid(65534)
store.root = Path(".")
ingester = Ingester(store)
ingester.catch_up()
with store.cursor() as con:
    sql = "SELECT path, count(*) FROM run JOIN step_done USING (run_key) GROUP BY path ORDER BY path"
    print(con.execute(sql).fetchall())
print(ingester.problems)
store.close()
"""


def test_files_and_folders_that_may_not_be_read_are_named(root: Path, healthy) -> None:
    write(root, header() + steps(0, 3))
    write(root, header(rank=1) + steps(0, 3), name="r00001-100-2-0000.jsonl").chmod(0o000)
    write(root, header() + steps(0, 3), run="closed")
    (root / "closed").chmod(0o700 if os.geteuid() == 0 else 0o000)
    write(root, header() + steps(0, 3), run="shut")
    (root / "shut" / "segments").chmod(0o700 if os.geteuid() == 0 else 0o000)
    try:
        code = [sys.executable, "-c", AS_NOBODY, str(root)]
        found, problems = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    finally:
        for path in (root / "closed", root / "shut" / "segments"):
            path.chmod(0o755)
    assert found == "[('beside', 10), ('run', 4)]"
    assert set(json.loads(problems.replace("'", '"'))) == {
        "closed", "shut/segments", "run/segments/r00001-100-2-0000.jsonl",
    }  # fmt: skip
    assert problems.count("Permission denied; give this user read permission") == 3


def test_a_newer_version_is_refused_with_the_version_that_reads_it(root: Path, store: Store, healthy) -> None:
    data = header() + steps(0, 3)
    write(root, data.replace(b'"v": 1', b'"v": 2').replace(b'"k"', b'"writer": "regimescope 9.1", "k"', 1))
    write(root, header(launch="b", first_step=2) + steps(2, 3, before=2), name="r00000-200-1-0000.jsonl")
    Ingester(store).catch_up()
    assert done(store) == [2, 3]
    (trouble,) = told(store)
    assert "wire version 2 of 'regimescope 9.1'" in trouble.text and "pip install -U regimescope" in trouble.text
    assert rows(store, "SELECT byte_offset FROM segment WHERE refused IS NOT NULL") == [(0,)]  # nothing of it is read
    healthy(store)


def test_an_upgrade_reads_what_was_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the version before is thrown away, for its hash has the wire version in it."""
    write(root, (header() + steps(0, 3)).replace(b'"v": 1', b'"v": 2'))
    code = """
import sys
from regimescope.monitor import wire
wire.WIRE_VERSION = int(sys.argv[2])
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
store = Store.open(sys.argv[1])
Ingester(store).catch_up()
with store.cursor() as con:
    print(con.execute("SELECT count(*) FROM step_done").fetchall()[0][0])
store.close()
"""
    counts = [
        subprocess.run([sys.executable, "-c", code, str(root), v], capture_output=True, text=True, check=True).stdout
        for v in ("1", "2")
    ]
    assert counts == ["0\n", "4\n"]
