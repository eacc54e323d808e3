"""The problems of one run: `open_run_tasks(config, policy)`, before anything is recorded."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from regimescope.trainer.config import TrainConfig
from regimescope.trainer.policy import Policy
from regimescope.trainer.task import Problem
from regimescope.trainer.task_mix import TaskMix, open_tasks

EVALUATION_SEED = 7
"Problems and samples of the held-out evaluation are the same in every run."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTasks:
    """The problems of a run."""

    training: TaskMix
    "Without end; moves on as it is asked."
    held_out: list[Problem]
    "Of the evaluation, the same in every run."


def open_run_tasks(config: TrainConfig, policy: Policy) -> RunTasks:
    """Open the tasks and see that the policy can write their prompts. Raises ConfigError."""
    sources = config.task_sources()
    training = open_tasks(sources, seed=config.seed)
    positions = getattr(policy.model.config, "max_position_embeddings", None) or sys.maxsize
    training.check(policy.encode, room=positions - config.rollout.max_tokens)
    held_out = open_tasks(sources, seed=EVALUATION_SEED, held_out=True).take(config.evaluation.prompts)
    return RunTasks(training=training, held_out=held_out)
