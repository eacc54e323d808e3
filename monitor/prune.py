"""`regimescope prune [ROOT] [--runs DAYS] [--yes]`: frees space below a root. Says what and how much, asks, deletes.

What goes: checkpoints that are neither a run's newest nor marked `keep`, those that a return to an older one has set
aside, `.partial` folders that a crash left, the index where nobody owns it (it is rebuilt from the segments). Segments
stay, unless --runs names runs that ended that many days ago: those go whole. A run that is alive is left alone. No link
is followed, nothing outside the root is touched but the two files of its index. Exit code 1 when something could not be
deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regimescope.monitor import query
from regimescope.monitor.errors import RegimescopeError, RunError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.owner import owner_of
from regimescope.monitor.places import default_root
from regimescope.monitor.segments import find_runs, list_segments
from regimescope.monitor.store import Store, index_path

GROWING_S = 600.0
"A trainer's segment that grew within that time belongs to a run that may be alive."
PARTIAL_S = 3600.0
"A younger `.partial` folder may still be written, by a tool that holds no lock."
CHECKPOINTS, PARTIAL, META, KEEP = "checkpoints", ".partial", "checkpoint.json", "keep"  # as the trainer names them
SUPERSEDED = "superseded-*"
"Folders of checkpoints that a return to an older one has set aside."
LOCK = "trainer.lock"
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that can go."""

    kind: Literal["checkpoint", "partial", "index", "run"]
    name: str
    "Below the root; the whole path for the index."
    path: Path
    run: Path | None
    "Folder of the run that it belongs to; None = the index."
    size: int
    "Bytes."


@dataclass(slots=True, kw_only=True)
class Plan:
    """What can go, and what was left alone."""

    items: list[Item] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)
    "A line each, with the reason."


def main(argv: list[str]) -> int:
    """List, ask, delete. Raises RunError without such a folder, RegimescopeError where nobody can be asked."""
    options = _parser().parse_args(argv)
    root = default_root(options.root)
    if not root.is_dir():
        raise RunError(f"no folder {root}: give the folder that holds the runs")
    root = root.resolve()
    plan = make_plan(root, options.runs)
    for item in plan.items:
        print(f"{_size(item.size):>12}  {item.kind:<10}  {item.name}")
    for line in plan.spared:
        print(f"left alone: {line}")
    if not plan.items:
        print("nothing to delete")
        return 0
    if not (options.yes or _agreed(plan)):
        print("nothing was deleted")
        return 0
    return delete_all(root, plan)


def make_plan(root: Path, older_than_days: float | None = None) -> Plan:
    """What can go below a resolved root. `older_than_days`: also whole runs that ended that long ago."""
    plan = Plan()
    old: set[str] = set() if older_than_days is None else _ended(root, older_than_days)
    for name in find_runs(root):
        folder = root / name
        if reason := alive(folder):
            plan.spared.append(f"{name}: {reason}")
            continue
        if name in old and (reason := _not_whole(folder, name)):
            plan.spared.append(f"{name}: {reason}")
        elif name in old:
            plan.items.append(Item(kind="run", name=name, path=folder, run=folder, size=_weigh(folder)))
            continue
        plan.items += _checkpoints(root, folder)
    _plan_index(root, plan)
    return plan


def alive(run: Path) -> str | None:
    """Why this run counts as alive; None = it does not."""
    try:
        with _locked(run):
            pass
    except BlockingIOError:
        return f"alive, its trainer holds {LOCK}"
    except OSError as error:
        return f"{LOCK} cannot be opened ({error.strerror})"
    age = time.time() - max((f.mtime for f in list_segments(run) if not f.is_monitor), default=0.0)
    return f"may be alive, its segments grew {max(0.0, age):.0f} s ago" if age < GROWING_S else None


@contextlib.contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Hold the trainer's lock, so that none starts meanwhile. Raises BlockingIOError when one runs."""
    try:
        descriptor = os.open(run / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # no trainer of ours
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _ended(root: Path, days: float) -> set[str]:
    """Runs with an end line whose segments have not changed for so many days."""
    store = Store.in_memory(root)
    try:
        Ingester(store, rollouts=False).catch_up()
        with store.cursor() as con:
            ended = [run.path for run in query.list_runs(con) if run.status == "ended"]
    finally:
        store.close()
    before = time.time() - days * DAY_S
    return {path for path in ended if all(f.mtime < before for f in list_segments(root / path))}


def _not_whole(folder: Path, name: str) -> str | None:
    """Why an ended run is not deleted as a folder."""
    if name == ".":
        return "is the root itself, which is never deleted"
    for at, folders, _ in os.walk(folder):
        if "segments" in folders and Path(at) != folder:
            return f"another run lies inside it, in {Path(at).relative_to(folder)}"
    return None


def _checkpoints(root: Path, run: Path) -> Iterator[Item]:
    above = run / CHECKPOINTS
    if above.is_symlink() or not above.is_dir():
        return
    folders = sorted(p for p in above.glob("step-*") if p.is_dir() and not p.is_symlink())
    complete = [p for p in folders if not p.name.endswith(PARTIAL) and (p / META).is_file()]
    for aside in above.glob(SUPERSEDED):  # a return to an older one left them
        for path in sorted(p for p in aside.glob("step-*") if p.is_dir() and not (p / KEEP).exists()):
            yield Item(kind="checkpoint", name=path.relative_to(root).as_posix(), path=path, run=run, size=_weigh(path))
    for path in folders:
        name = path.relative_to(root).as_posix()
        if path.name.endswith(PARTIAL):
            if time.time() - path.stat().st_mtime > PARTIAL_S:
                yield Item(kind="partial", name=name, path=path, run=run, size=_weigh(path))
        elif path in complete[:-1] and not (path / KEEP).exists():
            yield Item(kind="checkpoint", name=name, path=path, run=run, size=_weigh(path))


def _plan_index(root: Path, plan: Plan) -> None:
    path = index_path(root)
    if path.is_symlink() or not path.is_file():
        return
    owner = owner_of(root)
    if owner.in_use or owner.index.state == "foreign":
        why = "the index is in use" if owner.in_use else "it stands where the index belongs and is none of ours"
        plan.spared.append(f"{path}: {why}")
        return
    size = sum(p.stat().st_size for p in _index_files(path))
    plan.items.append(Item(kind="index", name=str(path), path=path, run=None, size=size))


def _index_files(path: Path) -> list[Path]:
    return [p for p in (path, path.with_name(path.name + ".wal")) if p.is_file() and not p.is_symlink()]


def _agreed(plan: Plan) -> bool:
    question = f"Delete {_count(len(plan.items))}, {_size(sum(item.size for item in plan.items))}? [y/N] "
    if not sys.stdin.isatty():
        raise RegimescopeError(f"{question.partition(' [')[0]} Nobody can be asked here: say --yes")
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def delete_all(root: Path, plan: Plan) -> int:
    """Delete what is planned, say what was freed; 1 when something is still there."""
    freed, gone = 0, 0
    for item in plan.items:
        try:
            _delete(root, item)
        except (OSError, RegimescopeError) as error:
            print(f"not deleted: {item.name}: {error}", file=sys.stderr)
        else:
            freed, gone = freed + item.size, gone + 1
    print(f"freed {_size(freed)}: {_count(gone)} deleted")
    return int(gone < len(plan.items))


def _delete(root: Path, item: Item) -> None:
    """Look again, for the question may have waited, and delete. Raises OSError, RegimescopeError."""
    if item.run is None:
        if owner_of(root).in_use:
            raise RegimescopeError("the index is in use by now")
        for path in _index_files(item.path):
            path.unlink()
        return
    if item.path.resolve() != item.path or root not in item.path.parents:  # a link has taken the place of a folder
        raise RegimescopeError("it no longer lies below the root")
    if reason := alive(item.run):
        raise RegimescopeError(reason)
    with _locked(item.run):
        shutil.rmtree(item.path)


def _weigh(folder: Path) -> int:
    """Bytes of the files in it; links count as themselves."""
    return sum((Path(at) / name).lstat().st_size for at, folders, names in os.walk(folder) for name in names)


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"


def _count(number: int) -> str:
    return f"{number} item{'' if number == 1 else 's'}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope prune", description="Delete old checkpoints and the index of a root; asks first."
    )
    parser.add_argument("root", nargs="?", metavar="ROOT", help="default: $REGIMESCOPE_ROOT, else ./runs")
    parser.add_argument(
        "--runs",
        type=_days,
        metavar="DAYS",
        help="also whole runs, segments included, that ended more than DAYS days ago",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    return parser


def _days(text: str) -> float:
    days = float(text)
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError("want a number of days, 0 or more")
    return days
