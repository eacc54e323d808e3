"""The configuration of a training run as typed values. docs/trainer.md explains every key; `config_file` reads it from
its layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, SignLimits
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.task import TASKS, TaskSpec

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    path: str = "warm:A"
    "What the policy begins with: warm:A, warm:B, or a folder with a causal language model and its tokenizer."


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSection:
    name: str | None = None
    "Problems that are asked: A or B; none = those of the warm start, A for another model."


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSection:
    prompts: int = 32
    "Prompts per step."
    group: int = 8
    "Responses per prompt; the advantage compares them."
    max_tokens: int = 96
    "Longest response, end token included; a longer one is truncated and counts as incorrect."
    overlong: int = 0
    "Soft overlong penalty: over this many tokens before max_tokens the reward falls by up to 1; 0 = none."
    temperature: float = 1.0
    stale: int = 0
    "Train on rollouts that are this many steps old, as asynchronous training does; 0 = on the step's own."


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSection:
    lr: float = 3e-4
    "Learning rate of Adam."
    beta1: float = 0.9
    beta2: float = 0.999
    passes: int = 2
    "Passes over the usable responses of a step."
    batch: int = 16
    "Responses per gradient update."
    clip_grad: float = 1.0
    "Largest norm of the gradient."
    max_dead_steps: int | None = None
    "End after this many steps in a row without a usable group; none = go on."


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsSection:
    pos: Pair = (0.8, 11.0)
    "[w_min, w_max] of A > 0, absolute weights."
    neg: Pair = (0.0, 101.0)
    "[w_min, w_max] of A < 0."


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    pos_w_min: Pair = (0.0, 1.0)
    "Range that commands may move w_min of A > 0 in."
    pos_w_max: Pair = (1.0, 101.0)
    neg_w_min: Pair = (0.0, 1.0)
    neg_w_max: Pair = (1.0, 101.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSection:
    every: int = 10
    "Steps between held-out evaluations; 0 = never."
    prompts: int = 128
    "Held-out problems, one sampled response each."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSection:
    every: int = 1
    "Steps between checkpoints; 0 = only on command and at the end."
    keep: int = 8
    "Newest checkpoints that are kept, besides those that were asked for."


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSection:
    sync: bool = True
    "Write in the call (nothing is lost when the process is killed); false = by a thread."
    statistics: bool = True
    "Measure buckets and histograms; false = scalars only."


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    objective: str = "dispo"
    "Name in the header; the bounds decide what is done."
    name: str | None = None
    "Name of the run; none = that of the scenario or objective, with the seed."
    steps: int = 60
    "Steps in all; a resumed run goes on up to this."
    seed: int = 0
    threads: int = 1
    "Threads of torch; 1 repeats bit for bit on a CPU."
    pace: float = 0.0
    "Least seconds per step, so that a person can watch and act."
    model: ModelSection = field(default_factory=ModelSection)
    task: TaskSection = field(default_factory=TaskSection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    update: UpdateSection = field(default_factory=UpdateSection)
    bounds: BoundsSection = field(default_factory=BoundsSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    record: RecordSection = field(default_factory=RecordSection)

    def start_bounds(self) -> Bounds:
        """The bounds at start. Raises BoundsError when they make no sense."""
        (pos_min, pos_max), (neg_min, neg_max) = self.bounds.pos, self.bounds.neg
        return Bounds(pos=SignBounds(w_min=pos_min, w_max=pos_max), neg=SignBounds(w_min=neg_min, w_max=neg_max))

    def accepted_limits(self) -> Limits:
        """What commands may set."""
        own = self.limits
        return Limits(
            pos=SignLimits(w_min=own.pos_w_min, w_max=own.pos_w_max),
            neg=SignLimits(w_min=own.neg_w_min, w_max=own.neg_w_max),
        )

    def task_spec(self) -> TaskSpec:
        """The problems that are asked. Raises ConfigError for an unknown name."""
        own = self.model.path.removeprefix("warm:") if self.model.path.startswith("warm:") else "A"
        name = self.task.name or own
        if name not in TASKS:
            raise ConfigError(f"task.name = {name!r}: known are {', '.join(TASKS)}")
        return TASKS[name]

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values; `config_file.build` reads them back. None is left out: TOML has no null."""
        return _without_none(dataclasses.asdict(self))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, Mapping) else v for k, v in values.items() if v is not None}
