"""`regimescope doctor [ROOT] [--json]`: what is wrong with the surroundings of the runs, each with one line of advice.

Looks at versions, the owner of the index, its lag, records lost, segments refused, disk, clocks, permissions and runs
that fell silent. Writes nothing and disturbs no server. Exit code 0: all is well (notes do not count), 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from regimescope import __version__
from regimescope.monitor import query
from regimescope.monitor.endpoint import ask_health
from regimescope.monitor.errors import RunError, WireError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.owner import Owner, owner_of
from regimescope.monitor.places import default_root
from regimescope.monitor.segments import SegmentFile, find_runs, list_segments
from regimescope.monitor.store import Store, index_path
from regimescope.monitor.troubles import troubles
from regimescope.monitor.wire import decode, number

DUCKDB_MAJOR = 2
MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.05
SKEW_S = 300.0
"A clock that differs from the file system's by more is reported; NFS and coarse times explain less."
RECENT_S = 3600.0
"A file that was written within that time is no old copy, whose time of change would say nothing."
SILENT_S = 600.0
"A run without an end line is reported after this silence."
LAG_S = 10.0
"Lines that a running server has not read for longer are reported; it reads every 0.25 s."
TAIL_BYTES = 1 << 20
"The newest line is looked for in that much of a segment's end."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report; also one object of `--json`."""

    level: Literal["ok", "note", "warning"]
    "A warning makes the exit code 1."
    topic: str
    text: str
    advice: str = ""
    "Empty when there is nothing to do."


def main(argv: list[str]) -> int:
    """Print the findings; exit code 0 or 1. Raises RunError when there is no such folder."""
    options = _parser().parse_args(argv)
    found = examine(default_root(options.root))
    if options.json:
        print(json.dumps([asdict(f) for f in found], indent=2, ensure_ascii=False))
    else:
        print("\n".join(_lines(found)))
    return int(any(f.level == "warning" for f in found))


def examine(root: Path) -> list[Finding]:
    """All findings about a root, in a fixed order of topics. Raises RunError."""
    if not root.is_dir():
        raise RunError(f"no folder {root}: give the folder that holds the runs")
    root = root.resolve()
    owner = owner_of(root)
    found = [*versions(), *ownership(owner), *lag(root, owner), *runs(root)]
    return [*found, *disks(root), *clocks(root, time.time()), *permissions(root)]


def versions(installed: dict[str, str] | None = None) -> Iterator[Finding]:
    """What runs here. `installed`: package -> version; default: what is there of the packages that matter."""
    found = _installed() if installed is None else installed
    listed = {"regimescope": __version__, "python": platform.python_version(), **found}
    yield Finding(level="ok", topic="versions", text=", ".join(f"{k} {v}" for k, v in listed.items()))
    duck = found.get("duckdb", "")
    if duck.partition(".")[0] != str(DUCKDB_MAJOR):
        yield Finding(
            level="warning",
            topic="versions",
            text=f"duckdb {duck or 'is missing'}; the index is made for duckdb {DUCKDB_MAJOR}",
            advice=f"pip install 'duckdb>={DUCKDB_MAJOR},<{DUCKDB_MAJOR + 1}'",
        )


def _installed() -> dict[str, str]:
    found = {}
    for name in ("duckdb", "pyarrow", "streamlit"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def ownership(owner: Owner) -> Iterator[Finding]:
    """Who has the index, and whether lock and endpoint agree."""
    ep, index = owner.endpoint, owner.index
    if ep is not None and owner.answers:
        yield Finding(level="ok", topic="owner", text=f"a server answers at {ep.address} (pid {ep.pid})")
    elif ep is not None and owner.elsewhere:
        text = f"a server on {ep.machine} has the root (pid {ep.pid}); it does not answer from here"
        yield Finding(level="note", topic="owner", text=text, advice=f"run this on {ep.machine} to see more")
    elif ep is not None:
        text = f"the endpoint file names {ep.address} (pid {ep.pid}), where nothing answers"
        advice = "if that server is gone, `regimescope serve` writes a new file; if it hangs, end it"
        yield Finding(level="warning", topic="owner", text=text, advice=advice)
    if index.state == "owned" and not owner.answers:
        who = "another process" if index.pid is None else f"process {index.pid}"
        advice = "close it (a notebook, say): no server can start while it is open"
        text = f"{who} holds the index {index.path} open, and no server answers"
        yield Finding(level="warning", topic="owner", text=text, advice=advice)
    elif index.state == "denied":
        advice = "set REGIMESCOPE_CACHE to a folder of your own"
        yield Finding(level="warning", topic="owner", text=f"the index {index.path} is not ours to read", advice=advice)
    elif not owner.in_use and ep is None:
        yield Finding(level="ok", topic="owner", text="no server runs on this root; nobody owns the index")
    if index.state == "stale":
        text = f"the index {index.path} is of another version or damaged"
        advice = "nothing is lost: the next `regimescope serve` rebuilds it from the segments"
        yield Finding(level="note", topic="owner", text=text, advice=advice)
    if index.state == "foreign":
        text = f"the file {index.path} stands where the index belongs, and is none of ours"
        advice = "the next `regimescope serve` moves it aside and makes an index; REGIMESCOPE_CACHE names another place"
        yield Finding(level="warning", topic="owner", text=text, advice=advice)


def lag(root: Path, owner: Owner) -> Iterator[Finding]:
    """Bytes of the segments that the index has not read yet."""
    sizes = {f"{run}/segments/{f.name}": f.size for run in find_runs(root) for f in list_segments(root / run)}
    total = sum(sizes.values())
    told = ask_health(owner.endpoint) if owner.endpoint is not None and owner.answers else None
    if told is not None:
        yield from _told(told)
    elif owner.in_use:
        text = f"{_size(total)} of segments; how much is unread only the owner of the index knows"
        yield Finding(level="note", topic="lag", text=text, advice="compare a run's last step on its page with its log")
    elif owner.index.offsets is None:
        yield Finding(
            level="ok", topic="lag", text=f"no index to read yet; {_size(total)} of segments wait for a server"
        )
    else:
        unread = sum(max(0, size - owner.index.offsets.get(name, 0)) for name, size in sizes.items())
        text = f"{unread} bytes of {total} not read into the index yet; no server runs, the next one reads them"
        yield Finding(level="ok", topic="lag", text=text)


def _told(health: Mapping[str, object]) -> Iterator[Finding]:
    """What the server that runs says of itself (`GET /api/health`)."""
    state, age = health.get("degraded"), _number(health, "tick_age_s")
    if isinstance(state, dict):
        since = f"for {_span(max(0.0, time.time() - _number(state, 'since')))}"
        text = f"store degraded {since}: {state.get('reason')}"
        advice = "free space where the index lies; the server tries again every few seconds and loses nothing"
        yield Finding(level="warning", topic="store", text=text, advice=advice)
    elif age > LAG_S:
        advice = "it reads a large log, or hangs: see its output; if nothing changes within minutes, start it again"
        text = f"the server has not finished a look at the segments for {_span(age)}"
        yield Finding(level="warning", topic="store", text=text, advice=advice)
    listed = health.get("runs")
    late = [run for run in listed if isinstance(run, dict)] if isinstance(listed, list) else []
    for run in late:
        if _number(run, "lag_s") > LAG_S:
            unread = _size(int(_number(run, "unread_bytes")))
            text = f"{run.get('path')}: {unread} not read yet, for up to {_span(_number(run, 'lag_s'))}"
            advice = "a server that was just started reads on; else log less per step, or give it a faster disk"
            yield Finding(level="warning", topic="lag", text=text, advice=advice)
    waiting = int(_number(health, "unread_bytes"))
    text = f"{waiting} bytes not read into the index yet; the server's last look began {age:.1f} s ago"
    yield Finding(level="ok", topic="lag", text=text)


def _number(values: Mapping[str, object], name: str) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def runs(root: Path) -> Iterator[Finding]:
    """Losses, refusals and silence of every run, from a private index."""
    store = Store.in_memory(root)
    try:
        ingester = Ingester(store)
        ingester.catch_up()
        with store.cursor() as con:
            found = query.list_runs(con)
            for run in found:
                yield from _losses(con, run)
                yield from _tails(root, con, run)
                yield from _silent(root, run)
    finally:
        store.close()
    for name, why in ingester.problems.items():
        text, _, advice = why.partition("; ")
        yield Finding(level="warning", topic="segments", text=f"{name}: {text}", advice=advice)
    yield Finding(level="ok", topic="runs", text=f"{len(found)} run{'' if len(found) == 1 else 's'} read")


def _losses(con: query.Connection, run: query.RunRow) -> Iterator[Finding]:
    for trouble in troubles(con, run.run_key):
        topic = "segments" if trouble.kind == "segment_refused" else "losses"
        yield Finding(level="warning", topic=topic, text=f"{run.path}: {trouble.text}", advice=trouble.advice)


def _tails(root: Path, con: query.Connection, run: query.RunRow) -> Iterator[Finding]:
    """Files that end in the middle of a line, and have done so for a while."""
    read = {s.segment: s.byte_offset for s in query.segments(con, run.run_key) if not s.refused}
    for file in list_segments(root / run.path):
        rest = file.size - read.get(file.name, file.size)
        if rest > 0 and time.time() - file.mtime > SILENT_S:
            text = f"{run.path}/segments/{file.name} ends in a line without end, {rest} bytes"
            advice = "its writer was killed in it: that record was never acknowledged, all before it are there"
            yield Finding(level="note", topic="losses", text=text, advice=advice)


def _silent(root: Path, run: query.RunRow) -> Iterator[Finding]:
    written = [f.mtime for f in list_segments(root / run.path) if not f.is_monitor]
    silent = time.time() - max(written, default=0.0)
    if run.status in ("running", "crashed") and run.end_reason is None and silent > SILENT_S:
        text = f"{run.path}: no end line, last written {_span(silent)} ago"
        advice = "crashed or hung: see whether its process lives; resume it, or leave it as it is"
        yield Finding(level="warning", topic="runs", text=text, advice=advice)


def disks(root: Path) -> Iterator[Finding]:
    """Free space at the root and at its index."""
    for where, path in {"root": root, "index": _existing(index_path(root))}.items():
        yield disk(where, path, shutil.disk_usage(path))


def disk(where: str, path: Path, usage: tuple[int, int, int]) -> Finding:
    """Free space. `usage`: total, used and free bytes, as of shutil.disk_usage."""
    total, _, free = usage
    share = free / total if total else 0.0
    text = f"{where}: {_size(free)} free of {_size(total)} ({share:.0%}) at {path}"
    if free >= MIN_FREE_BYTES and share >= MIN_FREE_SHARE:
        return Finding(level="ok", topic="disk", text=text)
    advice = "free some space: `regimescope prune` lists what can go; a full disk drops records"
    return Finding(level="warning", topic="disk", text=text, advice=advice)


def clocks(root: Path, now: float) -> Iterator[Finding]:
    """Writers whose clock is off, told by the newest line of each segment. `now`: unix seconds."""
    for run in find_runs(root):
        for file in list_segments(root / run):
            t = newest_time(root / run / "segments" / file.name, file)
            if t is None:
                continue
            advice = "set the clock of its host (NTP); steps are ordered without it, the times shown are wrong"
            name = f"{run}/segments/{file.name}"
            if t - now > SKEW_S:
                text = f"{name}: its newest line is {_span(t - now)} in the future"
                yield Finding(level="warning", topic="clock", text=text, advice=advice)
            elif file.mtime - t > SKEW_S:
                recent = now - file.mtime < RECENT_S
                text = f"{name}: its newest line is {_span(file.mtime - t)} older than the file"
                hint = advice if recent else "a copy without its times looks the same: nothing to do then"
                yield Finding(level="warning" if recent else "note", topic="clock", text=text, advice=hint)


def newest_time(path: Path, file: SegmentFile) -> float | None:
    """`t` of the last complete line, unix seconds of its writer; None when that line cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, TAIL_BYTES, max(0, file.size - TAIL_BYTES))
        finally:
            os.close(descriptor)
        return number(decode(data[: data.rfind(b"\n")].rpartition(b"\n")[2])["t"])
    except (OSError, WireError, ValueError, KeyError):
        return None


def permissions(root: Path) -> Iterator[Finding]:
    """Who may write where it matters."""
    if not os.access(root, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        advice = "fine for looking; to steer or to record, make it writable"
        yield Finding(level="warning", topic="permissions", text=f"{root} cannot be written", advice=advice)
    for run in find_runs(root):
        control = root / run / "control"
        try:
            mode = control.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISDIR(mode):
            text, advice = f"{run}/control is no folder, or a link", "remove it: the trainer makes its own"
            yield Finding(level="warning", topic="permissions", text=text, advice=advice)
        elif mode & (stat.S_IWGRP | stat.S_IWOTH):
            text = f"{run}/control can be written by others (mode {stat.S_IMODE(mode):04o}): they command this run"
            yield Finding(level="warning", topic="permissions", text=text, advice=f"chmod 700 {control}")


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _span(seconds: float) -> str:
    return next(
        (f"{seconds / n:.0f} {unit}" for n, unit in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= n),
        f"{seconds:.0f} s",
    )


def _lines(found: list[Finding]) -> Iterator[str]:
    for f in found:
        yield f"{f.level:<8} {f.topic}: {f.text}" + (f"\n         -> {f.advice}" if f.advice else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope doctor",
        description="What is wrong around the runs, and what to do. Exit code 1 on a warning.",
    )
    parser.add_argument("root", nargs="?", metavar="ROOT", help="default: $REGIMESCOPE_ROOT, else ./runs")
    parser.add_argument("--json", action="store_true", help="a JSON list instead of text")
    return parser
