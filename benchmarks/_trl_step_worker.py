"""Runs in TRL's environment for `trainer_step`: RL steps of TRL's GRPOTrainer on the tiny policy, timed.

    python -m benchmarks._trl_step_worker PLAN.json      prints one JSON object per RL step

The plan holds what both trainers are given: model folder, problems in order, sizes. `rollout_seconds` is TRL's
`_generate_and_score_completions` (generation, verdicts, advantages, log-probabilities of the generating weights);
`step_seconds` runs from the end of one RL step's last update to the end of the next one's, logging included.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer

NUMBER = re.compile(r"[+-]?\d{1,12}")


class TimedTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, told how long its rollouts take and how long its responses are."""

    rollout_seconds = 0.0
    tokens = 0

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        out = super()._generate_and_score_completions(inputs)
        self.rollout_seconds = time.perf_counter() - start
        self.tokens = int(out["completion_mask"].sum())
        return out


class StepClock(TrainerCallback):  # type: ignore[misc]
    """One entry of `steps` per RL step, the first one from the start of the training."""

    def __init__(self, updates: int, responses: int) -> None:
        self.trainer: TimedTrainer
        self.steps: list[dict[str, float]] = []
        self._updates, self._responses = updates, responses
        self._mark = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._updates:
            return
        now = time.perf_counter()
        self.steps.append(
            {
                "step_seconds": now - self._mark,
                "rollout_seconds": self.trainer.rollout_seconds,
                "response_length_mean": self.trainer.tokens / self._responses,
                "updates": self._updates,
                "accuracy": (self.trainer._metrics["train"]["reward"][-1] + 1) / 2,
            }
        )
        self._mark = now


def make_reward(eos_id: int) -> Callable[..., list[float]]:
    """+1 where the text after the last `#` is the answer and the end token came, else -1: our verifier's task, without
    its math-verify."""

    def reward(completions: list[str], completion_ids: list[list[int]], answer: list[int], **_: Any) -> list[float]:
        judged = zip(completions, completion_ids, answer, strict=True)
        return [1.0 if ids[-1] == eos_id and _number(text) == right else -1.0 for text, ids, right in judged]

    return reward


def _number(text: str) -> int | None:
    span = text.rpartition("#")[2].strip() if "#" in text else ""
    return int(span) if NUMBER.fullmatch(span) else None


def make_trainer(plan: dict[str, Any], folder: str, clock: StepClock, updates: int) -> TimedTrainer:
    """TRL's own defaults but for the sizes, the CPU in float32, CISPO, no gradient checkpointing (it only costs)."""
    responses = plan["prompts"] * plan["group"]
    config = GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, report_to="none", save_strategy="no", disable_tqdm=True,
        gradient_checkpointing=False, logging_steps=updates, seed=plan["seed"],
        per_device_train_batch_size=plan["batch"], generation_batch_size=responses, num_generations=plan["group"],
        num_iterations=plan["passes"], max_completion_length=plan["max_tokens"], shuffle_dataset=False,
        loss_type="cispo", epsilon_high=5.0, learning_rate=plan["lr"], lr_scheduler_type="constant",
        max_steps=updates * (len(plan["problems"]) // plan["prompts"]),
    )  # fmt: skip
    trainer = TimedTrainer(
        model=plan["model"],
        reward_funcs=make_reward(plan["eos_id"]),
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [text for text, _ in plan["problems"]], "answer": [answer for _, answer in plan["problems"]]}
        ),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    clock.trainer = trainer
    return trainer


def main(path: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    disable_progress_bar()
    torch.set_num_threads(1)
    plan = json.loads(Path(path).read_text("utf-8"))
    responses = plan["prompts"] * plan["group"]
    updates = responses // plan["batch"] * plan["passes"]
    clock = StepClock(updates, responses)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        make_trainer(plan, folder, clock, updates).train()
    for step in clock.steps:
        print(json.dumps(step))


if __name__ == "__main__":
    main(*sys.argv[1:])
