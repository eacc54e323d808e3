"""A folder as a log: TensorBoard events, a run of W&B, mlflow's store, trackio's; told by what lies in it.

`folder_rows(folder, notes, run=..., console=...)`; whatever else a folder holds is refused with what to name instead.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import chain, islice
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import dump_parquet, event_folder, mlflow_folder, sqlite_file, wandb_file
from regimescope.monitor.imports.rows import LogRow, Notes, Rows
from regimescope.monitor.imports.text import Progress, head_of

_LISTED = 6
_GZIP = b"\x1f\x8b"
_LOOKED_AT = 5000
"Files of a folder whose first bytes are read."


def folder_rows(
    folder: Path, notes: Notes, *, run: str | None, console: Callable[[Path], Rows], progress: Progress | None = None
) -> Rows:
    """Rows of the run in it. `console` reads a text file. Raises ImportFailed, OSError."""
    if not any(folder.iterdir()):
        raise ImportFailed(f"{folder} is an empty folder: nothing was written to it yet")
    if events := event_folder.find(folder):
        return event_folder.read(folder, events, notes, run=run, progress=progress)
    if wandb := _wandb_files(folder):
        return _wandb(folder, wandb, notes, run, console, progress)
    if runs := mlflow_folder.find(folder):
        return mlflow_folder.read(folder, runs, notes, run=run)
    stores = [path for path in sorted(folder.glob("*.db")) if _begins_with(path, sqlite_file.MAGIC)]
    if len(stores) == 1:
        return sqlite_file.read(stores[0], notes, run=run)
    raise ImportFailed(_nothing(folder, stores))


def wandb_rows(path: Path, notes: Notes, console: Callable[[Path], Rows], progress: Progress | None) -> Rows:
    """Rows of a `.wandb` file; of the console log beside it where it has none, as of a run that crashed.

    Raises ImportFailed, OSError.
    """
    rows = wandb_file.read(path, notes, progress)
    head: list[LogRow] = list(islice(rows, 1))
    if head:
        return chain(head, rows)
    log = path.parent / "files" / "output.log"
    if not log.is_file() or not log.stat().st_size:
        raise ImportFailed(
            f"{path} is a run of W&B without a row of history: nothing was logged to it, or it was cut before the "
            "first row; its console log, files/output.log, is not beside it either"
        )
    found = console(log)
    notes.leave_out("history of the .wandb file is empty: rows are those of files/output.log")
    return found


def _wandb_files(folder: Path) -> list[Path]:
    places = ("*.wandb", "*/*.wandb", "wandb/*/*.wandb")
    found = dict.fromkeys(path.resolve() for place in places for path in sorted(folder.glob(place)))
    return [path for path in found if _begins_with(path, wandb_file.MAGIC)]


def _wandb(
    folder: Path, files: list[Path], notes: Notes, run: str | None, console: Callable[[Path], Rows],
    progress: Progress | None,
) -> Rows:  # fmt: skip
    named = {path.parent.name if path.parent != folder.resolve() else path.stem: path for path in files}
    fitting = [path for name, path in named.items() if run in (None, name, path.stem, path.stem.removeprefix("run-"))]
    listed = ", ".join(list(named)[:12]) + (f" and {len(named) - 12} more" if len(named) > 12 else "")
    if not fitting:
        raise ImportFailed(f"{folder} has no run {run!r}: choose one with --run, of {listed}")
    if len(fitting) > 1:
        raise ImportFailed(f"{folder} holds {len(fitting)} runs: choose one with --run, of {listed}")
    return wandb_rows(fitting[0], notes, console, progress)


def _begins_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _nothing(folder: Path, stores: list[Path]) -> str:
    if stores:
        return f"{folder} holds {len(stores)} SQLite files: name one of {', '.join(path.name for path in stores)}"
    found = islice((path for path in folder.rglob("*") if path.is_file()), _LOOKED_AT)
    names = [path.relative_to(folder).as_posix() for path in found]
    if not names:
        return f"{folder} holds no file, in no folder below it: nothing was written to it yet"
    listed = ", ".join(sorted(names)[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
    return (
        f"{folder} holds no TensorBoard events with a number, no run of W&B, of mlflow or of trackio, and no dump of "
        f"rollouts: name the log in it, of {listed}"
    )


def is_binary(head: bytes) -> bool:
    """Whether these first bytes are those of a binary format that is read here."""
    return event_folder.is_event_file(head) or head.startswith(
        (wandb_file.MAGIC, sqlite_file.MAGIC, dump_parquet.MAGIC)
    )


def file_rows(
    path: Path, notes: Notes, *, run: str | None, console: Callable[[Path], Rows], progress: Progress | None = None
) -> Rows:
    """Rows of such a file. Raises ImportFailed, OSError."""
    with open(path, "rb") as file:
        if file.read(2) == _GZIP:
            return _unpacked(path, partial(file_rows, notes=notes, run=run, console=console))
    head = head_of(path)
    if event_folder.is_event_file(head):
        return event_folder.read_file(path, notes, progress)
    if head.startswith(wandb_file.MAGIC):
        return wandb_rows(path, notes, console, progress)
    if head.startswith(sqlite_file.MAGIC):
        return sqlite_file.read(path, notes, run=run)
    raise ImportFailed(
        f"{path} is a Parquet file without the columns `step` and `completion` of TRL's dumps of rollouts"
    )


def _unpacked(path: Path, read: Callable[[Path], Rows]) -> Rows:
    """Rows of a file in gzip, by way of a copy that is gone afterwards. Raises ImportFailed, OSError."""
    with tempfile.TemporaryDirectory(prefix="regimescope-") as folder:
        copy = Path(folder) / path.name.removesuffix(".gz")
        try:
            with gzip.open(path, "rb") as packed, open(copy, "wb") as file:
                shutil.copyfileobj(packed, file)
            yield from read(copy)
        except EOFError:
            raise ImportFailed(f"{path} ends inside its gzip data: is it complete?") from None
        except ImportFailed as error:
            raise ImportFailed(str(error).replace(str(copy), str(path))) from None
