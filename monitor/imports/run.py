"""A foreign log becomes a run below a root: `import_log(log, root)`; `imported(log)` for a command that only reads.

Written under a hidden name and renamed when it is complete, so that a server never shows half of it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.framework_windows import Effective, effective, flattened, frameworks, known_keys
from regimescope.monitor.header_writer import RatioSource
from regimescope.monitor.imports import aliases
from regimescope.monitor.imports.dump_join import dump_of
from regimescope.monitor.imports.formats import Options, open_log
from regimescope.monitor.imports.mapping import Mapper
from regimescope.monitor.imports.rows import LogRow, Notes, Rows
from regimescope.monitor.imports.text import Progress
from regimescope.monitor.imports.write import Imported, RunWriter, write_run

_PEEKED = 40
"Rows whose keys tell the framework."
_TELLS_NOTHING = re.compile(
    r"(trainer_state|metrics|output|train|training|log|logs|history|console|stdout|run|events.*|step_logs)([-_]?\d*)",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asks for."""

    options: Options = field(default_factory=Options)
    framework: str | None = None
    "None = by the keys."
    user_map: dict[str, str] = field(default_factory=dict)
    "Source key -> our name."
    name: str | None = None
    "Of the run folder; None = after the log."
    ratio_source: RatioSource | None = None
    config: dict[str, object] = field(default_factory=dict)
    "Settings of the job, beside those that the log holds."
    rollouts: Path | None = None
    "Dump of rollouts that belongs to the log."


def import_log(log: Path, root: Path, request: Request, progress: Progress | None = None) -> Imported:
    """Import into a new folder below the root. Raises ImportFailed, OSError."""
    folder = root / (request.name or name_of(log, request.options.run))
    if folder.exists():
        raise ImportFailed(f"{folder} is there already: give the import another --name, or delete that folder")
    partial = root / f".{folder.name}.importing"
    shutil.rmtree(partial, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    try:
        done = read_into(log, partial, request, progress)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    done.folder = folder
    return done


@contextlib.contextmanager
def imported(log: Path, request: Request, progress: Progress | None = None) -> Iterator[Imported]:
    """The log as a run in a folder that is gone afterwards. Raises ImportFailed, OSError."""
    with tempfile.TemporaryDirectory(prefix="regimescope-") as root:
        yield import_log(log, Path(root), request, progress)


def read_into(
    log: Path,
    folder: Path,
    request: Request,
    progress: Progress | None = None,
    *,
    idle: Callable[[], bool] | None = None,
) -> Imported:
    """Read the log into this run folder; with `idle` for as long as it grows. Raises ImportFailed, OSError."""
    notes = Notes()
    dump = dump_of(log, request.rollouts, notes)
    if dump is not None and request.rollouts is None:
        rows: Rows = dump.rows()
    else:
        rows = open_log(log, notes, request.options, progress)
    head, rows = _peek(rows)
    framework = request.framework or notes.framework or aliases.guess({key for row in head for key in row.values})
    mapper = Mapper(framework=framework, user=request.user_map)
    notes.config = {**notes.config, **request.config}
    writer = RunWriter(
        folder, log, notes, mapper, ratio_source=request.ratio_source, window=window_of(framework, notes.config),
        following=idle is not None, dump=dump,
    )  # fmt: skip
    return write_run(writer, rows, idle=idle)


def window_of(framework: str | None, config: Mapping[str, object]) -> Effective | None:
    """The window that these settings make, where they say one; so the bounds lint speaks. Raises LintError."""
    if framework is None or framework not in frameworks():
        return None
    flat = flattened(config)
    named = {key.lstrip("-").rpartition(".")[2].replace("-", "_") for key in flat}
    return effective(framework, flat) if named & known_keys(framework) else None


def _peek(rows: Rows) -> tuple[list[LogRow], Rows]:
    """The first rows, and all rows; of a log that grows those that are there."""
    head: list[LogRow] = []
    taken: list[LogRow | None] = []
    for row in islice(rows, 4 * _PEEKED):
        taken.append(row)
        if row is None and head:
            break
        if row is not None:
            head.append(row)
        if len(head) >= _PEEKED:
            break
    return head, chain(taken, rows)


def name_of(log: Path, run: str | None = None) -> str:
    """A folder name after the log and the run in it that is taken; after the folder that the log lies in where its own
    name says nothing.

    >>> name_of(Path("a3_enlang_42/checkpoint-50/trainer_state.json"))
    'a3_enlang_42-checkpoint-50'
    """
    stem = log.name.partition(".")[0] or log.name.strip(".")
    parts = [stem]
    above = list(log.absolute().parts[1:-1])
    while above and (
        _TELLS_NOTHING.fullmatch(parts[0]) or re.fullmatch(r"(checkpoint|version|files)[-_]?\d*", parts[0])
    ):
        parts.insert(0, above.pop())
        if _TELLS_NOTHING.fullmatch(parts[-1]) or parts[-1] == "files":
            parts.pop()
    slug = re.sub(r"[^A-Za-z0-9._=+-]+", "-", "-".join([*parts, run] if run else parts)).strip("-.")
    return slug[:80] or "imported"
