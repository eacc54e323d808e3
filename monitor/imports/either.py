"""A run of ours or a foreign log, by what lies there: for commands that only read (`check`, `report`, `compare`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from regimescope.monitor.errors import ImportFailed, RunError
from regimescope.monitor.imports.command import bar
from regimescope.monitor.imports.run import Request, imported
from regimescope.monitor.imports.write import Imported
from regimescope.monitor.places import default_root
from regimescope.monitor.private import RunView, read_run
from regimescope.monitor.segments import find_runs


@contextlib.contextmanager
def read_either(
    what: str, root: str | None, request: Request, *, rollouts: bool = True
) -> Iterator[tuple[RunView, Imported | None]]:
    """One run, and what was made of the log where it is one. Raises RunError, ImportFailed."""
    log = log_of(what, root)
    if log is None:
        above = default_root(root)
        if not (Path(what).exists() or (above / what).exists()):
            raise RunError(f"no run folder and no log {what!r}, neither here nor below {above}: give one, or --root")
        with read_run(what, root, rollouts=rollouts) as view:
            yield view, None
        return
    try:
        with imported(log, request, bar(log)) as done, read_run(str(done.folder), None, rollouts=rollouts) as view:
            yield view, done
    except OSError as error:
        raise ImportFailed(f"cannot read {log}: {error.strerror}") from None


def log_of(what: str, root: str | None) -> Path | None:
    """The path of a foreign log; None where it names a run, or nothing that is there."""
    log = Path(what)
    if log.is_file():
        return log
    if not log.is_dir() or not any(log.iterdir()):
        return None
    is_ours = bool(find_runs(log)) or bool(find_runs(default_root(root) / what))
    return None if is_ours else log
