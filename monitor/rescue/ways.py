"""How another framework takes the bounds and goes on from a checkpoint: the facts of framework_windows.toml, filled in.

>>> way_of("verl", None, 50, "ckpt/global_step_50").resume
'trainer.resume_mode=resume_path trainer.resume_from_path=ckpt/global_step_50'
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.framework_windows import frameworks
from regimescope.monitor.lint import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How one framework says it."""

    framework: str
    version: str
    "Where the facts were read."
    settings: tuple[str, ...]
    "That make the nearest window there is; empty = no bound is proposed."
    missed: tuple[str, ...]
    "What of the window cannot be said there."
    resume: str
    "How it goes on from the checkpoint; empty = there is none."
    note: str


def way_of(framework: str | None, bounds: Bounds | None, step: int | None, path: str | None) -> Way | None:
    """None: a framework that the table does not know."""
    name = known(framework)
    if name is None:
        return None
    facts = frameworks()[name]
    settings: list[str] = []
    missed: list[str] = []
    if bounds is not None:
        _, settings, missed = nearest(name, bounds)
    how = facts["resume"]
    return Way(
        framework=name, version=facts["version"], settings=tuple(settings), missed=tuple(missed),
        resume="" if step is None else _filled(how["how"], how["name"], step, path),
        note="" if step is None else how.get("note", ""),
    )  # fmt: skip


def known(framework: str | None) -> str | None:
    """Its name in the table: "verl 0.9.1" is "verl"."""
    first = (framework or "").lower().replace("_", "-").partition(" ")[0]
    return first if first in frameworks() else None


def _filled(how: str, name: str, step: int, path: str | None) -> str:
    """With the path that the log told, else with PATH before the name that such a folder has."""
    told = (path or f"PATH/{name.format(step=step)}").rstrip("/")
    above = str(PurePosixPath(told).parent)
    return how.format(path=shlex.quote(told), quoted=json.dumps(told), folder=shlex.quote(above), step=step)
