"""Lines in, rows out: exactly once, whatever is killed; bad lines counted; superseded launches left out."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regimescope.monitor import query
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import Ack
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store

HEADER = {
    "v": 1, "k": "header", "q": 0, "t": 1790000000.0, "run": "r", "launch": "a", "start": "fresh", "role": "trainer",
    "rank": 0, "ranks": 1, "part": 0, "first_step": 0, "objective": "dispo", "ratio_source": "behaviour",
    "bounds": {"pos": [0.8, 11.0], "neg": [0.0, 101.0]}, "edges": {"demo": [-0.1, 0.1, 2.3]},
}  # fmt: skip
NOTE = "0199a3c4-81aa-7000-8000-0000000000b2"
TABLES = (
    "run",
    "launch",
    "slice",
    "scalar",
    "bucket_step",
    "ratio_hist",
    "hist",
    "step_done",
    "event",
    "mark",
    "command",
    "ack",
)


def write(root: Path, lines: list[object], *, run: str = "run", name: str = "r00000-100-1-0000.jsonl") -> Path:
    """A segment of JSON lines; a str goes in as it is."""
    folder = root / run / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with path.open("a") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path


def step_line(step: int, q: int, **more: object) -> dict[str, object]:
    return {"v": 1, "k": "step", "q": q, "t": 1790000000.0 + step, "s": step, "m": {"accuracy": [0.5, 8]}, **more}


def read(root: Path, store: Store | None = None) -> Store:
    store = store or Store.in_memory(root)
    Ingester(store).catch_up()
    return store


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.cursor() as con:
        return con.execute(sql).fetchall()


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """All tables by content, without keys that depend on the order of arrival."""
    with store.cursor() as con:
        return {t: con.execute(f"SELECT * FROM {t} ORDER BY ALL".replace("*", _columns(t))).fetchall() for t in TABLES}


def _columns(table: str) -> str:
    times = {
        "run": ("started_at", "last_row_at", "ended_at"),
        "launch": ("started_at", "ended_at", "state_since", "last_row_at"),
        "mark": ("ts",),
        "command": ("issued_at", "not_after"),
    }.get(table, ("ts",) if table in ("scalar", "bucket_step", "step_done", "event", "ack") else ())
    return (
        "* EXCLUDE (run_key)"
        if not times
        else f"* EXCLUDE (run_key, {', '.join(times)}), " + ", ".join(f"epoch({t})" for t in times)
    )


def test_the_lines_of_a_step_become_the_rows_of_its_tables(root: Path) -> None:
    seven = [300, 280, 500, 520, 40, 60, 300]
    sums = dict.fromkeys(
        (
            "ratio_sum",
            "weight_sum",
            "abs_adv_weight_sum",
            "signed_adv_weight_sum",
            "entropy_sum",
            "logp_sum",
            "log_ratio_sum",
            "log_ratio_sq_sum",
        ),
        [1.5] * 7,
    )
    zeros = {"clip_high": [6, 0, 0, 0, 0, 0, 0], "clip_low": [0, 14, 0, 0, 0, 0, 0], "clamped": [0] * 7}
    side = {"i": [0, 3], "n": [14, 6], "r": [10.5, 90.0], "a": [14.0, 6.0], "ra": [10.5, 90.0]}
    write(
        root,
        [
            HEADER,
            {"v": 1, "k": "scalars", "q": 1, "t": 1.0, "s": 0, "u": 0, "m": {"grad_norm": 0.41}},
            {
                "v": 1,
                "k": "buckets",
                "q": 2,
                "s": 0,
                "u": 0,
                "rev": 0,
                "bounds": HEADER["bounds"],
                "tokens": seven,
                **zeros,
                **sums,
            },
            {"v": 1, "k": "ratio_hist", "q": 3, "s": 0, "edges": "demo", "pos": side},
            {"v": 1, "k": "hist", "q": 4, "s": 0, "name": "response_length", "edges": "demo", "i": [1], "n": [16]},
            {"v": 1, "k": "scalars", "q": 5, "s": 0, "sl": {"env": "math"}, "m": {"accuracy": [0.6, 10]}},
            {
                "v": 1,
                "k": "step",
                "q": 6,
                "t": 2.0,
                "s": 0,
                "m": {"accuracy": [0.5, 16], "kl_ref": "NaN", "loss": "-Infinity"},
            },
        ],
    )
    store = read(root)
    assert rows(
        store,
        "SELECT name, update, slice_id, value, weight FROM v_scalar ORDER BY name, slice_id",
    )[:3] == [
        ("accuracy", None, 0, 0.5, 16.0),
        ("accuracy", None, 1, 0.6, 10.0),
        ("grad_norm", 0, 0, 0.41, 1.0),
    ]
    assert rows(store, "SELECT isnan(value) FROM v_scalar WHERE name = 'kl_ref'") == [(True,)]
    assert rows(store, "SELECT value FROM v_scalar WHERE name = 'loss'") == [(float("-inf"),)]
    assert rows(store, "SELECT tokens, clip_high, w_min, w_max FROM bucket_step WHERE bucket = 'R1'") == [
        (300, 6, 0.8, 11.0)
    ]
    assert rows(store, "SELECT w_min, w_max, entropy_effect_sum FROM bucket_step WHERE bucket = 'zero_adv'") == [
        (None, None, None)
    ]
    assert rows(store, "SELECT clip_low_frac FROM v_bucket_step WHERE bucket = 'R2'") == [(14 / 280,)]
    assert rows(store, "SELECT sign, counts, abs_adv_ratio_sum FROM ratio_hist") == [
        (1, [14, 0, 0, 6], [10.5, 0.0, 0.0, 90.0])
    ]
    assert rows(store, "SELECT counts FROM hist") == [([0, 16, 0, 0],)]
    assert rows(store, "SELECT kind, value FROM slice ORDER BY slice_id") == [("all", ""), ("env", "math")]
    assert rows(store, "SELECT step, rank, seq FROM step_done") == [(0, 0, 6)]
    store.close()


BAD = [
    "no json",
    '{"v":1,"k":"step","q":1,"s":0,"m":{"accuracy":"high"}}',
    '{"v":1,"k":"step","q":1,"s":-1,"m":{}}',
    '{"v":1,"k":"step","q":1,"s":1e300,"m":{}}',
    '{"v":1,"k":"step","q":1,"s":true,"m":{}}',
    '{"v":1,"k":"step","s":0,"m":{}}',
    '{"v":1,"k":"buckets","q":1,"s":0,"rev":0,"bounds":{"pos":[0,1],"neg":[0,1]},"tokens":[1,2]}',
    '{"v":1,"k":"ratio_hist","q":1,"s":0,"edges":"unknown","pos":{}}',
    '{"v":1,"k":"hist","q":1,"s":0,"name":"x","edges":"demo","i":[9],"n":[1]}',
    '{"v":1,"k":"event","q":1,"kind":"state","data":{"state":"dreaming"}}',
    '{"v":1,"k":"ack","q":1,"id":"not-a-uuid","status":"applied"}',
    '{"v":1,"k":"scalars","q":1,"s":0,"sl":{"env":"a","lag":"0"},"m":{"accuracy":1}}',
]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_counted_and_skipped_whole(root: Path, line: str) -> None:
    write(root, [HEADER, line, step_line(0, 2)])
    store = read(root)
    assert rows(store, "SELECT bad_lines, lost FROM segment") == [(1, 0)]
    assert rows(store, "SELECT step FROM step_done") == [(0,)]
    assert rows(store, "SELECT count(*) FROM scalar") == [(1,)]
    store.close()


def test_lines_without_a_header_are_bad(root: Path) -> None:
    write(root, [step_line(0, 1), step_line(1, 2)])
    store = read(root)
    assert rows(store, "SELECT bad_lines, byte_offset > 0 FROM segment") == [(2, True)]
    assert rows(store, "SELECT count(*) FROM launch") == [(0,)]
    store.close()


def test_an_unknown_kind_is_kept_whole(root: Path) -> None:
    line = {"v": 1, "k": "weather", "q": 1, "t": 5.0, "s": 3, "wind": "NaN"}
    write(root, [HEADER, line])
    store = read(root)
    ((kind, step, payload),) = rows(store, "SELECT kind, step, payload FROM event")
    assert (kind, step, json.loads(str(payload))) == ("wire:weather", 3, line)
    store.close()


def test_holes_in_the_sequence_are_lost_records(root: Path) -> None:
    write(root, [HEADER, step_line(0, 1), step_line(1, 5), step_line(2, 6)])
    store = read(root)
    assert rows(store, "SELECT lost, bad_lines, last_seq FROM segment") == [(3, 0, 6)]
    store.close()


def test_the_sequence_goes_on_through_the_parts(root: Path) -> None:
    write(root, [HEADER, step_line(0, 1)])
    write(root, [{**HEADER, "q": 1, "part": 1}, step_line(1, 3)], name="r00000-100-1-0001.jsonl")
    store = read(root)
    assert rows(store, "SELECT segment, lost FROM segment ORDER BY segment") == [
        ("r00000-100-1-0000.jsonl", 0),
        ("r00000-100-1-0001.jsonl", 1),
    ]
    assert rows(store, "SELECT count(*) FROM launch") == [(1,)]
    store.close()


def test_a_newer_wire_version_is_refused_with_the_reason(root: Path) -> None:
    write(root, [HEADER, step_line(0, 1), step_line(1, 2, v=2), step_line(2, 3)])
    store = read(root)
    ((refused, offset),) = rows(store, "SELECT refused, byte_offset FROM segment")
    assert "wire version 2" in str(refused) and "install a newer one" in str(refused)
    assert rows(store, "SELECT step FROM step_done") == [(0,)]
    assert rows(store, "SELECT kind FROM event") == [("segment_refused",)]
    ingester = Ingester(store)
    write(root, [step_line(3, 4)])
    assert ingester.tick() == set()  # nothing more is read, and nothing is read again
    assert rows(store, "SELECT byte_offset FROM segment") == [(offset,)]
    store.close()


def test_slices_beyond_64_are_dropped_with_one_event(root: Path) -> None:
    lines = [
        {"v": 1, "k": "scalars", "q": i + 1, "s": 0, "sl": {"env": f"e{i}"}, "m": {"accuracy": 0.5}} for i in range(70)
    ]
    write(root, [HEADER, *lines])
    store = read(root)
    assert rows(store, "SELECT count(*), max(slice_id) FROM slice") == [(65, 64)]
    assert rows(store, "SELECT count(*) FROM scalar") == [(64,)]
    assert rows(store, "SELECT kind FROM event") == [("slices_dropped",)]
    store.close()


def test_a_repeated_state_is_a_heartbeat_and_no_row(root: Path) -> None:
    def state(q: int, t: float, name: str) -> dict[str, object]:
        return {"v": 1, "k": "event", "q": q, "t": t, "s": 4, "kind": "state", "data": {"state": name}}

    write(
        root,
        [HEADER, state(1, 1790000100.0, "paused"), state(2, 1790000105.0, "paused"), state(3, 1790000110.0, "paused")],
    )
    store = read(root)
    assert rows(store, "SELECT count(*) FROM event") == [(1,)]
    assert rows(store, "SELECT state, epoch(state_since), epoch(last_row_at) FROM launch") == [
        ("paused", 1790000100.0, 1790000110.0)
    ]
    write(root, [state(4, 1790000115.0, "running")])
    read(root, store)
    assert rows(store, "SELECT state, epoch(state_since) FROM launch") == [("running", 1790000115.0)]
    store.close()


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        ({"v": 1, "k": "end", "q": 2, "t": 9.0, "reason": "finished"}, "ended", "finished"),
        ({"v": 1, "k": "end", "q": 2, "t": 9.0, "reason": "error"}, "ended", "error"),
        ({"v": 1, "k": "end", "q": 2, "t": 9.0, "reason": "rollback"}, "running", "rollback"),
        (None, "running", None),
    ],
)
def test_the_status_of_a_run(root: Path, line: object, status: str, reason: str | None) -> None:
    write(root, [HEADER, step_line(0, 1), *([line] if line else [])])
    store = read(root)
    assert rows(store, "SELECT status, end_reason FROM v_run") == [(status, reason)]
    store.close()


def test_a_run_that_fell_silent_long_ago_has_crashed_until_it_writes_again(root: Path) -> None:
    path = write(root, [HEADER, step_line(0, 1), step_line(1, 2)])
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    store = Store.in_memory(root)
    ingester = Ingester(store)
    ingester.tick()
    assert rows(store, "SELECT status FROM run") == [("crashed",)]
    assert 3590 < ingester.silence()[1] < 3700
    write(root, [step_line(2, 3)])
    ingester.tick()
    assert rows(store, "SELECT status FROM run") == [("running",)]
    assert ingester.silence()[1] < 60
    store.close()


def test_a_resumed_launch_supersedes_and_its_tokens_count_once(trainer, root: Path) -> None:
    with trainer.open() as recorder:
        for step in range(6):
            trainer.step(recorder, step, accuracy=0.1)
    with trainer.open(launch="launch-b", start="resume", first_step=3) as recorder:
        for step in range(3, 8):
            trainer.step(recorder, step, accuracy=0.9)
    store = read(root)
    one = sum(trainer.stats().tokens)
    assert rows(store, "SELECT step, sum(tokens) FROM v_bucket GROUP BY step ORDER BY step") == [
        (step, one) for step in range(8)
    ]
    assert [v for (v,) in rows(store, "SELECT value FROM v_metric WHERE name = 'accuracy' ORDER BY step")] == [
        0.1
    ] * 3 + [0.9] * 5
    assert rows(store, "SELECT launch_no, superseded_from FROM launch ORDER BY launch_no") == [(0, 3), (1, None)]
    assert rows(store, "SELECT count(*) FROM step_done") == [(11,)]  # the superseded rows stay
    store.close()


def test_ranks_add_exactly(trainer, root: Path) -> None:
    for rank, (accuracy, count) in enumerate([(0.5, 100.0), (1.0, 300.0)]):
        with trainer.open(rank=rank, ranks=2) as recorder:
            recorder.buckets(0, 0, trainer.stats(), revision=0, bounds=trainer.bounds)
            recorder.step(0, {"accuracy": (accuracy, count), "tokens": 1000.0, "ratio_max": 2.0 + rank})
    store = read(root)
    assert rows(store, "SELECT name, value FROM v_metric ORDER BY name") == [
        ("accuracy", 0.875),
        ("ratio_max", 3.0),
        ("tokens", 2000.0),
    ]
    assert rows(store, "SELECT tokens, ranks FROM v_bucket WHERE bucket = 'R4'") == [(800, 2)]
    assert rows(store, "SELECT complete, ranks_seen FROM v_step") == [(True, 2)]
    store.close()


def test_slices_of_a_kind_add_up_to_the_whole(trainer, root: Path) -> None:
    with trainer.open() as recorder:
        for scale, env in ((1, "math"), (2, "code")):
            recorder.buckets(0, 0, trainer.stats(scale), revision=0, bounds=trainer.bounds, slice=("env", env))
        recorder.buckets(0, 0, trainer.stats(1) + trainer.stats(2), revision=0, bounds=trainer.bounds)
        recorder.step(0, {"accuracy": 0.5})
    store = read(root)
    whole, parts = (rows(store, f"SELECT sum(tokens) FROM v_bucket WHERE slice_id {which}") for which in ("= 0", "> 0"))
    assert whole == parts == [(3 * sum(trainer.stats().tokens),)]
    store.close()


def test_commands_acks_and_marks_find_each_other(trainer, root: Path) -> None:
    command = "0199a3c4-7d1e-7000-8000-0000000000a1"
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
        after = Bounds.from_wire({"pos": [0.8, 5.0], "neg": [0.0, 101.0]})
        recorder.ack(Ack(id=command, step=1, status="applied", revision=1, applied=after))
        trainer.step(recorder, 1)
    lines = [
        {"v": 1, "k": "header", "q": 0, "t": 1.0, "run": "r", "role": "monitor", "part": 0},
        {
            "v": 1, "k": "command", "q": 1, "t": 1790000055.0, "id": command, "launch": "launch-a", "by": "ana",
            "kind": "set_bounds", "args": after.to_wire(), "expect": 0,
            "not_after": 1790000355.0, "alert": None, "why": "entropy rises",
        },
        {"v": 1, "k": "mark", "q": 2, "t": 2.0, "id": NOTE, "by": "ana", "kind": "note", "text": "hm"},
        {"v": 1, "k": "event", "q": 3, "t": 3.0, "s": 1, "kind": "notice", "data": {"launch": "launch-a"}},
        {"v": 1, "k": "end", "q": 4, "t": 4.0, "reason": "finished"},
    ]  # fmt: skip
    write(root, lines, name="monitor-100-1-0000.jsonl")
    store = read(root)
    with store.cursor() as con:
        (row,) = query.commands(con, 1)
        force = query.bounds_in_force(con, 1)
    assert (row.status, row.applied_step, row.revision, row.by, row.why) == ("applied", 1, 1, "ana", "entropy rises")
    assert [(c.name, c.old, c.new) for c in row.changes] == [("pos.w_max", 11.0, 5.0)]
    assert force is not None and (force.bounds, force.revision, force.since_step) == (after, 1, 1)
    assert rows(store, "SELECT kind, text, actor FROM mark") == [("note", "hm", "ana")]
    assert rows(store, "SELECT launch_no FROM event WHERE kind = 'notice'") == [(0,)]
    assert rows(store, "SELECT closed, bad_lines FROM segment WHERE segment LIKE 'monitor%'") == [(True, 0)]
    store.close()


def test_a_command_that_stands_in_two_files_is_one(root: Path) -> None:
    head = {"v": 1, "k": "header", "q": 0, "run": "r", "role": "monitor", "part": 0}
    mark = {
        "v": 1,
        "k": "mark",
        "q": 1,
        "t": 2.0,
        "id": "0199a3c4-81aa-7000-8000-0000000000b2",
        "kind": "note",
        "text": "hm",
    }
    write(root, [HEADER])
    for name in ("monitor-100-1-0000.jsonl", "monitor-200-1-0000.jsonl"):
        write(root, [head, mark], name=name)
    store = read(root)
    assert rows(store, "SELECT count(*) FROM mark") == [(1,)]
    store.close()


def test_a_copied_run_folder_is_a_run_of_its_own(collapsed, root: Path) -> None:
    shutil.copytree(root / "run", root / "copy")
    store = read(root)
    assert rows(store, "SELECT path, count(*) FROM run JOIN step_done USING (run_key) GROUP BY path ORDER BY path") == [
        ("copy", 40),
        ("run", 40),
    ]
    store.close()


def test_a_run_that_is_deleted_or_replaced_leaves_the_index(trainer, root: Path) -> None:
    with trainer.open() as recorder:
        trainer.step(recorder, 0)
    store = Store.in_memory(root)
    ingester = Ingester(store)
    ingester.catch_up()
    shutil.rmtree(root / "run" / "segments")
    (root / "run" / "segments").mkdir()
    with trainer.open(launch="other") as recorder:
        trainer.step(recorder, 7)
    ingester.catch_up()
    assert rows(store, "SELECT step, launch_id FROM step_done JOIN launch USING (run_key, launch_no)") == [(7, "other")]
    shutil.rmtree(root / "run")
    time.sleep(0.1)  # the walk over the root is not repeated at once
    ingester.tick()
    assert [rows(store, f"SELECT count(*) FROM {table}") for table in TABLES] == [[(0,)]] * len(TABLES)
    store.close()


def test_a_rebuilt_index_is_the_same(trainer, root: Path) -> None:
    with trainer.open() as recorder:
        for step in range(5):
            trainer.step(recorder, step)
            recorder.scalars(step, {"accuracy": 0.25}, slice=("env", "math"))
    write(root, [HEADER, "bad", step_line(3, 2)], run="other/run")
    live = Store.in_memory(root)
    ingester = Ingester(live)
    ingester.tick()
    with trainer.open(launch="b", start="resume", first_step=3) as recorder:
        for step in range(3, 6):
            trainer.step(recorder, step)
            ingester.tick()
    ingester.catch_up()
    again = read(root)
    assert everything(live) == everything(again)
    live.close()
    again.close()


WRITER = """
import sys
from regimescope.monitor.record import Recorder
run, rank, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Recorder(run, launch="a", rank=rank, ranks=2, sync=True) as recorder:
    for step in range(steps):
        recorder.step(step, {f"m{i}": float(step) for i in range(20)})
"""
MONITOR = """
import sys
from pathlib import Path
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.store import Store
store = Store.open(sys.argv[1], path=Path(sys.argv[2]))
ingester = Ingester(store)
print("ready", flush=True)
while True:
    ingester.tick()
"""


def test_every_row_comes_exactly_once_although_the_monitor_is_killed(root: Path, tmp_path: Path) -> None:
    steps, index = 1500, tmp_path / "index.duckdb"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(root / "run"), str(rank), str(steps)]) for rank in (0, 1)
    ]
    chance = random.Random(1)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", MONITOR, str(root), str(index)], stdout=subprocess.PIPE
        ) as monitor:
            assert monitor.stdout is not None and monitor.stdout.readline() == b"ready\n"
            time.sleep(0.1 + 0.3 * chance.random())
            monitor.kill()
    assert [writer.wait() for writer in writers] == [0, 0]
    store = read(root, Store.open(root, path=index))
    assert rows(store, "SELECT count(*), count(DISTINCT (rank, step, metric_id)) FROM scalar") == [
        (40 * steps, 40 * steps)
    ]
    assert rows(store, "SELECT sum(lost), sum(bad_lines) FROM segment") == [(0, 0)]
    assert rows(store, "SELECT count(*) FROM step_done") == [(2 * steps,)]
    store.close()


def test_an_idle_tick_has_no_news(collapsed, root: Path) -> None:
    store = Store.in_memory(root)
    ingester = Ingester(store)
    ingester.catch_up()
    assert [ingester.tick() for _ in range(3)] == [set()] * 3
    store.close()
