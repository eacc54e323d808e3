"""Where a run starts: at step 0 under the bounds of its configuration, or after its newest checkpoint (or the one that
was asked for) under the bounds that were acked last.

A resume takes the higher revision of `control_state.json` and the checkpoint. Bounds on the command line override both,
as a new revision that is written to `control_state.json` at once. A rollback of the living trainer writes its bounds
there first and then sets the later checkpoints aside; a resume does the rest where it was killed in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import (
    ControlState,
    bounds_problems,
    read_control_state,
    replace_file,
    write_control_state,
)
from regimescope.monitor.launch import list_segments
from regimescope.trainer.checkpoint import Checkpoint, CheckpointFolder, read_checkpoint, read_meta
from regimescope.trainer.config import TrainConfig
from regimescope.trainer.config_file import build, flat, override
from regimescope.trainer.errors import CheckpointError, ConfigError
from regimescope.trainer.ranks import Ranks

CONFIG_FILE = "config.json"
FREE_TO_CHANGE = ("steps", "pace")
"Keys that may differ from the stored configuration without `--set`."


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """What the trainer begins with."""

    config: TrainConfig
    start: Literal["fresh", "resume", "rollback"]
    first_step: int
    bounds: Bounds
    revision: int
    weight_version: int = 0
    checkpoint: Checkpoint | None = None
    "None = with the policy that the configuration names."

    @property
    def model_source(self) -> str:
        return self.config.model.path if self.checkpoint is None else str(self.checkpoint.folder)


def agreed_start(ranks: Ranks, start: Callable[[], tuple[Path, StartPoint]]) -> tuple[Path, StartPoint]:
    """(run folder, beginning) that rank 0 decides on; `start` may write there. The other ranks read the checkpoint
    themselves, it may be large. Raises what `start` raises."""
    point: StartPoint | None = None

    def told() -> tuple[Path, StartPoint, Path | None]:
        nonlocal point
        run_dir, point = start()
        return run_dir, replace(point, checkpoint=None), None if point.checkpoint is None else point.checkpoint.folder

    run_dir, bare, folder = ranks.agreed(told)
    if point is None:
        point = bare if folder is None else replace(bare, checkpoint=read_checkpoint(folder))
    return run_dir, point


def has_run(run_dir: Path) -> bool:
    """Whether somebody has recorded there."""
    return bool(list_segments(run_dir))


def fresh_start(config: TrainConfig) -> StartPoint:
    """The configuration's own beginning; `load_config` has checked its bounds."""
    return StartPoint(config=config, start="fresh", first_step=0, bounds=config.start_bounds(), revision=0)


def resumed_start(
    run_dir: Path, given: TrainConfig | None, settings: Sequence[str], *, step: int | None = None
) -> StartPoint:
    """Raises ConfigError, CheckpointError, ControlError. `given`: configuration named on the command line, which must
    agree with the stored one. `step`: go back to the checkpoint of this step, and set the later ones aside; None = the
    newest."""
    if not has_run(run_dir):
        raise ConfigError(f"--resume: {run_dir} holds no run; leave --resume out to start one")
    config = override(_stored_config(run_dir, given, settings), settings)
    folder = CheckpointFolder(run_dir, keep=1)
    if step is None:
        _finish_rollback(run_dir, folder)
    source = folder.latest() if step is None else folder.of_step(step)
    checkpoint = None if source is None else read_checkpoint(source)
    first_step = 0 if checkpoint is None else checkpoint.meta.step + 1
    if first_step >= config.steps:
        raise ConfigError(f"--resume: {run_dir} is through with its {config.steps} steps; give more with --steps")
    bounds, revision = _bounds_in_force(run_dir, config, checkpoint)
    override_bounds = any(text.partition("=")[0].strip().startswith("bounds") for text in settings)
    if override_bounds:
        bounds, revision = config.start_bounds(), revision + 1
    _check_limits(config, bounds)
    if override_bounds:
        write_control_state(run_dir, ControlState(revision=revision, bounds=bounds, step=first_step))
    if step is not None:
        folder.supersede_after(step)
    return StartPoint(
        config=config,
        start="resume",
        first_step=first_step,
        bounds=bounds,
        revision=revision,
        weight_version=0 if checkpoint is None else checkpoint.meta.weight_version,
        checkpoint=checkpoint,
    )


def rollback_start(run_dir: Path, config: TrainConfig, *, step: int, bounds: Bounds, revision: int) -> StartPoint:
    """After the checkpoint of this step, under these bounds; changes nothing. Raises CheckpointError."""
    checkpoint = read_checkpoint(CheckpointFolder(run_dir, keep=1).of_step(step))
    return StartPoint(
        config=config,
        start="rollback",
        first_step=step + 1,
        bounds=bounds,
        revision=revision,
        weight_version=checkpoint.meta.weight_version,
        checkpoint=checkpoint,
    )


def keep_rollback(run_dir: Path, point: StartPoint, before: ControlState) -> None:
    """From here on the run goes on from that point, also after a kill. `before`: what is in force if this fails.

    Raises ControlError, CheckpointError.
    """
    write_control_state(run_dir, ControlState(revision=point.revision, bounds=point.bounds, step=point.first_step))
    try:
        CheckpointFolder(run_dir, keep=1).supersede_after(point.first_step - 1)
    except CheckpointError:
        write_control_state(run_dir, before)
        raise


def _finish_rollback(run_dir: Path, folder: CheckpointFolder) -> None:
    """Set aside what a rollback that was killed had left in place: the newest checkpoint is then of a step under the
    acked bounds, and of an older revision."""
    acked, newest = read_control_state(run_dir), folder.latest()
    if acked is None or newest is None:
        return
    meta = read_meta(newest)
    if meta.step >= acked.step > 0 and meta.revision < acked.revision:
        folder.supersede_after(acked.step - 1)


def store_config(run_dir: Path, config: TrainConfig) -> None:
    """Keep the configuration in the run folder, for a resume. Raises ConfigError."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        replace_file(run_dir / CONFIG_FILE, json.dumps(config.to_dict(), indent=1).encode())
    except OSError as error:
        raise ConfigError(f"cannot write into {run_dir}: {error.strerror}; choose another --run-dir") from None


def _stored_config(run_dir: Path, given: TrainConfig | None, settings: Sequence[str]) -> TrainConfig:
    path = run_dir / CONFIG_FILE
    try:
        stored = build(json.loads(path.read_text("utf-8")), str(path))
    except FileNotFoundError:
        raise ConfigError(f"--resume: {path} is missing, so this run was not made by `regimescope train`") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"--resume: {path} cannot be read: {error}") from None
    if given is not None:
        named = {text.partition("=")[0].strip() for text in settings}  # may differ: that is what they are for
        other = [key for key in _differences(stored, given) if key not in named]
        if other:
            raise ConfigError(
                f"--resume: {', '.join(other)} differ from the stored configuration of {run_dir}; "
                "a resumed run keeps it: leave the file, preset and scenario out and change single keys with --set"
            )
    return stored


def _differences(stored: TrainConfig, given: TrainConfig) -> list[str]:
    """Dotted keys whose values differ, besides those that may."""
    old, new = flat(stored), flat(given)
    return sorted(key for key in old if old[key] != new[key] and key not in FREE_TO_CHANGE)


def _bounds_in_force(run_dir: Path, config: TrainConfig, checkpoint: Checkpoint | None) -> tuple[Bounds, int]:
    """The higher revision of what was acked last and what the checkpoint holds; a tie goes to the acked one."""
    candidates = [(0, config.start_bounds())]
    if checkpoint is not None:
        candidates.append((checkpoint.meta.revision, checkpoint.meta.bounds))
    acked = read_control_state(run_dir)
    if acked is not None:
        candidates.append((acked.revision, acked.bounds))
    highest = max(revision for revision, _ in candidates)
    return [bounds for revision, bounds in candidates if revision == highest][-1], highest


def _check_limits(config: TrainConfig, bounds: Bounds) -> None:
    problems = bounds_problems(bounds, config.accepted_limits(), config.published_rule().bounds)
    if problems:
        raise ConfigError(f"bounds at start: {'; '.join(problems)}; change [bounds], or widen [limits]")
