"""Carries out the runs of the lab, several at a time, each in a folder `OUT/runs/NAME`. A run that is complete is left
as it is, so the same command goes on after any interruption; one that was cut off begins anew.

`lab.json` in the folder is written last: settings, seed, hash of the trainer's code, wall time. A run counts as done
only with the settings and the code that are asked for; runs of other code are never mixed with these.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch

from regimescope.monitor.control import replace_file
from regimescope.monitor.errors import RegimescopeError
from regimescope.trainer.errors import LabError
from regimescope.trainer.lab.plan import LabRun
from regimescope.trainer.train import main as train

RECORD = "lab.json"
_NOT_TRAINING = ("lab", "warm_start.py")
"Parts of the trainer package that no run depends on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A run that is complete."""

    run: LabRun
    folder: Path
    seconds: float
    "Wall time of its training."


@contextlib.contextmanager
def held(out: Path) -> Iterator[None]:
    """The output folder, made if need be, for one lab at a time. Raises LabError."""
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
        lock = open(out / "lab.lock", "a")  # noqa: SIM115  (held for the whole study)
    except OSError as error:
        raise LabError(f"cannot write into {out}: {error.strerror}; choose another --out") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(f"another lab is at work in {out}: wait for its end, or choose another --out") from None
        yield


class Runs:
    """The runs of one output folder."""

    def __init__(self, out: Path, say: Callable[[str], None]) -> None:
        self.out = out
        self._say = say

    def folder(self, run: LabRun) -> Path:
        return self.out / "runs" / run.name

    def carry_out(self, runs: Sequence[LabRun], jobs: int) -> list[Done]:
        """All of them, in the order given. Raises LabError: another code state's runs lie there, or a training failed.
        Ctrl-C ends it; what is complete stays."""
        found = {run: self._found(run) for run in runs}
        missing = [run for run in runs if found[run] is None]
        if missing and len(missing) < len(runs):
            self._say(f"{len(runs) - len(missing)} of {len(runs)} runs are there already")
        begin = time.monotonic()
        for count, (run, seconds) in enumerate(_in_processes(missing, self.folder, jobs), 1):
            found[run] = Done(run=run, folder=self.folder(run), seconds=seconds)
            left = (time.monotonic() - begin) / count * (len(missing) - count)
            self._say(f"{count} of {len(missing)}: {run.name}, {seconds:.0f} s; {_duration(left)} left")
        return [done for run in runs if (done := found[run]) is not None]

    def _found(self, run: LabRun) -> Done | None:
        """What lies there, if it is complete."""
        folder = self.folder(run)
        try:
            record = json.loads((folder / RECORD).read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LabError(f"{folder / RECORD} cannot be read ({error}): delete the folder {folder}") from None
        if record.get("code") != code_hash() or record.get("run") != json.loads(json.dumps(asdict(run))):
            raise LabError(
                f"{folder} was made with other settings or by other code (trainer {record.get('code')}, "
                f"this is {code_hash()}): choose another --out, or delete it"
            )
        return Done(run=run, folder=folder, seconds=record["seconds"])


def carry_out(run: LabRun, folder: Path) -> float:
    """One run from its beginning; its wall time, seconds. Raises LabError with the trainer's own words."""
    if folder.exists():  # cut off
        _refuse_if_alive(folder)
        shutil.rmtree(folder)
    if run.branch is not None:
        _copy(folder.with_name(run.branch.base), folder, run.branch.checkpoint)
    begin = time.perf_counter()
    train_quietly(["--run-dir", str(folder), *run.options], folder.with_name(folder.name + ".log"))
    seconds = time.perf_counter() - begin
    if not run.keep_checkpoints:  # one of every run is a gigabyte of a large study
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    record = {
        "run": asdict(run), "arm": run.arm, "condition": run.condition, "seed": run.seed, "code": code_hash(),
        "seconds": round(seconds, 2), "torch": torch.__version__, "python": platform.python_version(),
        "machine": platform.machine(),
    }  # fmt: skip
    replace_file(folder / RECORD, json.dumps(record, indent=1).encode())
    return seconds


def _refuse_if_alive(folder: Path) -> None:
    """The trainer of a lab that was killed may still finish its run."""
    with contextlib.suppress(FileNotFoundError), open(folder / "trainer.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(f"a trainer is still at work in {folder}: wait for its end, then run this again") from None


def _copy(base: Path, folder: Path, checkpoint: int) -> None:
    """What a resume from this checkpoint needs of the base run."""
    name = f"step-{checkpoint:08d}"
    shutil.copytree(base / "segments", folder / "segments")
    shutil.copytree(base / "checkpoints" / name, folder / "checkpoints" / name)
    shutil.copy(base / "config.json", folder)


def train_quietly(options: Sequence[str], log: Path) -> None:
    """`regimescope train` in this process, what it says in `log`. Raises LabError, KeyboardInterrupt."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            code = train(list(options))
        except RegimescopeError as error:
            raise LabError(f"regimescope train {' '.join(options)}: {error}") from None
    if code in (130, 143):
        raise KeyboardInterrupt
    if code:
        raise LabError(f"regimescope train {' '.join(options)} ended with {code}: see {log}")


@cache
def code_hash() -> str:
    """Hash of all files that a run's numbers depend on: the trainer, its data and its warm starts; 12 hex digits."""
    digest = hashlib.sha256()
    top = Path(str(files("regimescope.trainer"))).resolve()
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top)
        if path.is_file() and name.parts[0] not in _NOT_TRAINING and "__pycache__" not in name.parts:
            digest.update(f"{name.as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _in_processes(
    runs: Sequence[LabRun], folder: Callable[[LabRun], Path], jobs: int
) -> Iterator[tuple[LabRun, float]]:
    """(run, seconds) as they get ready. With the first failure no other run is begun."""
    if not runs:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(runs)), mp_context=context, initializer=_worker) as pool:
        waiting = list(runs)
        under_way: dict[Future[float], LabRun] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < jobs:
                    run = waiting.pop(0)
                    under_way[pool.submit(carry_out, run, folder(run))] = run
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield under_way.pop(future), future.result()
        finally:
            for future in under_way:
                future.cancel()


def _worker() -> None:
    """Ctrl-C reaches the workers through the trainer, which ends its step; a signal between two runs ends quietly."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else "a moment"
