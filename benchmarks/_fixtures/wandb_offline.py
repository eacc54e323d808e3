"""W&B offline: `.wandb` files and a console log."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import wandb
from benchmarks._fixtures import STEPS, Truth, note, numbers


def write_wandb(folder: Path) -> Truth:
    """A run with rows of a reward function between those of the trainer, and one that crashed before its first row."""
    truth: Truth = {}
    quiet = {"x_disable_stats": True, "x_disable_meta": True, "disable_git": True, "disable_code": True, "silent": True}
    run = wandb.init(
        project="fixtures", name="grpo-tiny", dir=str(folder), mode="offline", id="logged",
        config={"epsilon_high": 5.0, "loss_type": "cispo", "nested": {"num_generations": 8}},
        settings=wandb.Settings(console="off", **quiet),
    )  # fmt: skip
    for step in range(1, STEPS + 1):
        for part in range(3):
            run.log({"format_reward": step + part / 10, "samples": "a text"})
        values = {**numbers(step), "stats": {"ratio": 1 + step / 100}}
        if step == 7:
            values["train/grad_norm"] = math.inf
        run.log({"train/global_step": step, **values})
        flat = {key: value for key, value in values.items() if key != "stats"}
        note(truth, "logged", step, {**flat, "stats/ratio": 1 + step / 100, "format_reward": step + 0.1})
    run.finish()
    run = wandb.init(
        project="fixtures", name="crashed", dir=str(folder), mode="offline", id="crashed",
        settings=wandb.Settings(console="wrap", **quiet),
    )  # fmt: skip
    for step in range(1, 9):
        values = {"reward": round(numbers(step)["train/reward"], 4), "entropy": 0.5, "loss": 0.01}
        print({key: str(value) for key, value in values.items()} | {"epoch": str(step / 100)}, flush=True)
        note(truth, "crashed", step, {key: value for key, value in values.items() if key == "reward"})
    run.finish(exit_code=1)
    wandb.teardown()
    for path in [p for p in folder.rglob("*") if p.is_symlink()]:
        path.unlink()
    for path in sorted((folder / "wandb").glob("offline-run-*")):
        kept = folder / path.name.rpartition("-")[2]
        (kept / "files").mkdir(parents=True)
        (store,) = path.glob("*.wandb")
        shutil.copy(store, kept / store.name)
        if (path / "files" / "output.log").exists():
            shutil.copy(path / "files" / "output.log", kept / "files" / "output.log")
    shutil.rmtree(folder / "wandb")
    return truth
