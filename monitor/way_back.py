"""A remedy as commands to copy: `relax` moves its bound in the living run, `way_back` goes back to the checkpoint that
it names.

The monitor starts no process. A living trainer is stopped first; the bound that the remedy moves is set in the same
command. The way back is only for our own trainer; of another, the remedy's own sentence has to do.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.query import BOUND_NAMES, BoundsInForce, RunRow

OURS = "regimescope "
"How the framework of a run of our own trainer begins."
FOLDER = "checkpoints"
_OPTIONS = {name: "--" + name.replace(".w_", "-") for name in BOUND_NAMES}


def relax(folder: Path, run: RunRow, remedy: Mapping[str, object], signature: str) -> list[str]:
    """The command that asks the running trainer for the bound; empty where it takes none."""
    bound, target = remedy.get("bound"), remedy.get("target")
    if run.status != "running" or "set_bounds" not in run.capabilities or remedy.get("checkpoint") is not None:
        return []
    if bound not in _OPTIONS or not isinstance(target, int | float):
        return []
    return [shlex.join(["regimescope", "bounds", str(folder), _OPTIONS[str(bound)], f"{target:g}", "--why", signature])]


def way_back(
    folder: Path, run: RunRow, remedy: Mapping[str, object], bounds: BoundsInForce | None
) -> tuple[str, list[str]]:
    """(what is in the way, commands in order); both empty where the remedy names no checkpoint. `folder`: of the
    run."""
    step = remedy.get("checkpoint")
    if not isinstance(step, int) or not (run.framework or "").startswith(OURS):
        return "", []
    kept = folder / FOLDER
    if kept.is_dir() and not (kept / f"step-{step:08d}").is_dir():
        return "that checkpoint was deleted since: start again as the remedy says, from step 0.", []
    command = ["regimescope", "train", "--run-dir", str(folder), "--resume", "--checkpoint", str(step)]
    moved = _moved(remedy, bounds)
    if moved is not None:
        sign, side = moved
        command += ["--set", f"bounds.{sign}=[{side.w_min:g},{side.w_max:g}]"]
    stop = [shlex.join(["regimescope", "stop", str(folder)])] if run.status == "running" else []
    return "", [*stop, shlex.join(command)]


def _moved(remedy: Mapping[str, object], bounds: BoundsInForce | None) -> tuple[str, SignBounds] | None:
    """The sign whose bounds change, and its pair afterwards."""
    bound, target = remedy.get("bound"), remedy.get("target")
    if bounds is None or bound not in BOUND_NAMES or not isinstance(target, int | float):
        return None
    sign, _, name = str(bound).partition(".")
    now: Bounds = bounds.bounds
    return sign, replace(getattr(now, sign), **{name: float(target)})
