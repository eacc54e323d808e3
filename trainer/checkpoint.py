"""Checkpoints: `run_dir/checkpoints/step-NNNNNNNN/`, a model folder that any tool loads, with what the trainer needs to
go on exactly.

Written to `.partial` and renamed, so a folder without that ending is complete. The newest few are kept, and those that
somebody asked for. A checkpoint holds weights, tokenizer, optimiser, random states, waiting rollouts, bounds and
revision of the last finished step.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import BoundsError
from regimescope.monitor.wire import encode
from regimescope.trainer.errors import CheckpointError
from regimescope.trainer.policy import Policy, save_policy

FORMAT = 2
PARTIAL = ".partial"
META, STATE, KEEP = "checkpoint.json", "trainer.pt", "keep"
ASIDE = "superseded"
"Folder of the checkpoints that a return to an older one has superseded, numbered."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeta:
    """What a reader wants to know without loading tensors."""

    step: int
    "Last finished step."
    revision: int
    bounds: Bounds
    weight_version: int
    "Number of the weights in it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    folder: Path
    "Complete; `load_policy` reads it."
    meta: CheckpointMeta
    state: Mapping[str, Any]
    "What the trainer handed to `save`: tensors, numbers, strings, lists, tuples and dicts of them."


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(self, run_dir: Path, *, keep: int) -> None:
        self.path = run_dir / "checkpoints"
        self._keep = keep
        self.deleted: list[int] = []
        "Steps of those that the last `save` deleted."

    def save(self, policy: Policy, meta: CheckpointMeta, state: Mapping[str, Any], *, asked_for: bool = False) -> Path:
        """Write one and delete those that are too old. `asked_for`: is never deleted. Raises CheckpointError."""
        folder = self.path / f"step-{meta.step:08d}"
        self.deleted = []
        try:
            if not folder.exists():
                self._write(folder, policy, meta, state)
            if asked_for:
                (folder / KEEP).touch()
            self._prune()
        except OSError as error:
            raise CheckpointError(
                f"cannot write {folder}: {error.strerror}; free some space or choose another --run-dir"
            ) from None
        return folder

    def latest(self) -> Path | None:
        """The newest complete one."""
        return max(self._complete(), default=None)

    def of_step(self, step: int) -> Path:
        """The complete one of this step. Raises CheckpointError that names those that are there."""
        folder = self.path / f"step-{step:08d}"
        if folder not in self._complete():
            steps = ", ".join(str(int(p.name.removeprefix("step-"))) for p in sorted(self._complete()))
            raise CheckpointError(f"{self.path} has no checkpoint of step {step}; it has {steps or 'none'}")
        return folder

    def supersede_after(self, step: int) -> list[Path]:
        """Set those of later steps aside, where no resume finds them; where they lie now. Raises CheckpointError."""
        later = sorted(p for p in self._complete() if p.name > f"step-{step:08d}")
        number = 1
        while (self.path / f"{ASIDE}-{number}").exists():
            number += 1
        aside = self.path / f"{ASIDE}-{number}"
        try:
            for folder in later:
                aside.mkdir(exist_ok=True)
                folder.rename(aside / folder.name)
        except OSError as error:
            raise CheckpointError(f"cannot move {self.path}'s later checkpoints aside: {error.strerror}") from None
        return [aside / folder.name for folder in later]

    def _write(self, folder: Path, policy: Policy, meta: CheckpointMeta, state: Mapping[str, Any]) -> None:
        partial = folder.with_name(folder.name + PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        save_policy(policy, partial)
        torch.save(dict(state), partial / STATE)
        wire = {
            "format": FORMAT,
            "step": meta.step,
            "revision": meta.revision,
            "bounds": meta.bounds.to_wire(),
            "weight_version": meta.weight_version,
        }
        (partial / META).write_bytes(encode(wire))  # spells infinity, which JSON lacks
        partial.rename(folder)

    def _complete(self) -> list[Path]:
        return [p for p in self.path.glob("step-*") if p.is_dir() and not p.name.endswith(PARTIAL)]

    def _prune(self) -> None:
        disposable = sorted(p for p in self._complete() if not (p / KEEP).exists())
        for folder in disposable[: -self._keep]:
            shutil.rmtree(folder, ignore_errors=True)
            self.deleted.append(int(folder.name.removeprefix("step-")))


def read_meta(folder: Path) -> CheckpointMeta:
    """Raises CheckpointError."""
    with _readable(folder):
        wire = json.loads((folder / META).read_text())
        if wire["format"] != FORMAT:
            raise CheckpointError(f"{folder} has checkpoint format {wire['format']}, this version reads {FORMAT}")
        return CheckpointMeta(
            step=int(wire["step"]),
            revision=int(wire["revision"]),
            bounds=Bounds.from_wire(wire["bounds"]),
            weight_version=int(wire["weight_version"]),
        )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Load everything but the weights. Raises CheckpointError."""
    meta = read_meta(folder)
    with _readable(folder):
        state = torch.load(folder / STATE, weights_only=True)
    return Checkpoint(folder=folder, meta=meta, state=state)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, BoundsError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{folder} cannot be read ({error}): delete this folder to resume from the one before it"
        ) from None
