"""The runs of a grid, read from grids.toml: `planned("quick", seeds=[0, 1, 2])`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from regimescope.trainer.errors import ConfigError

GRIDS = ("quick", "paper")
DISPO = "dispo"
"The arm that runs beside each."


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A run that goes on from a checkpoint of another."""

    base: str
    "Name of that run."
    checkpoint: int
    "Step of the checkpoint."


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRun:
    """One training run of the lab."""

    name: str
    "Of its folder."
    condition: str
    "Key of grids.toml; of a rescue, the recipe."
    arm: str
    "Key of grids.toml; of a rescue, what is done."
    seed: int
    options: tuple[str, ...]
    "Of `regimescope train`, the folder left out."
    keep_checkpoints: bool = False
    branch: Branch | None = None


def planned(
    grid: str,
    *,
    seeds: Sequence[int],
    arms: Sequence[str] = (),
    conditions: Sequence[str] = (),
    steps: int | None = None,
) -> list[LabRun]:
    """All runs of a grid in the order in which they are carried out. `arms`, `conditions`: only these, with DISPO
    beside; empty = all. `steps`: None = the grid's. Raises ConfigError."""
    table = study()
    _known("arm", arms, table["arm"])
    _known("condition", conditions, table["condition"])
    runs = [
        lab_run(condition, arm, seed=seed, steps=steps or part["steps"])
        for part in table["grid"][grid]
        for seed in seeds
        for condition in part["conditions"]
        if not conditions or condition in conditions
        for arm in _beside_dispo([arm for arm in part["arms"] if not arms or arm in arms])
    ]
    if not runs:
        raise ConfigError(f"--grid {grid} has no run of these arms under these conditions; leave one of the two out")
    return runs


def _beside_dispo(arms: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([DISPO, *arms])) if arms else []


def lab_run(condition: str, arm: str, *, seed: int, steps: int) -> LabRun:
    """One cell of the study."""
    table = study()
    settings = {**LEAN, **table["condition"][condition]["settings"], **table["arm"][arm].get("settings", {})}
    return LabRun(
        name=f"{condition}-{arm}-s{seed}",
        condition=condition,
        arm=arm,
        seed=seed,
        options=("--preset", table["arm"][arm]["preset"], "--steps", str(steps), "--seed", str(seed), *sets(settings)),
    )


def sets(settings: Mapping[str, Any]) -> list[str]:
    """As options of `regimescope train`."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


LEAN = {"checkpoint.every": 0, "record.rollouts_every": 10}
"What keeps a study of a hundred runs small: checkpoints at the end alone, responses of every tenth step."


@cache
def study() -> Mapping[str, Any]:
    """grids.toml."""
    return tomllib.loads((files("regimescope.trainer.lab") / "grids.toml").read_text("utf-8"))


def _known(kind: str, names: Sequence[str], table: Mapping[str, Any]) -> None:
    unknown = [name for name in names if name not in table]
    if unknown:
        raise ConfigError(f"--{kind}s {','.join(unknown)}: known are {', '.join(table)}")
