"""The configuration of a training run as typed values. docs/trainer.md explains every key; `config_file` reads it from
its layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from regimescope.monitor.bounds import Bounds, Limits, SignBounds, SignLimits, SignRule, WeightRule
from regimescope.monitor.rollouts import RolloutOptions
from regimescope.trainer.loss.aggregation import Aggregation
from regimescope.trainer.loss.kl import KlEstimator
from regimescope.trainer.loss.mismatch import MismatchCorrection, MismatchMode
from regimescope.trainer.loss.objective import KlPenalty, Objective
from regimescope.trainer.loss.published import published_rule

Pair = tuple[float, float]

SWITCHED_OFF = SignRule(base="1", cap_low=0.0, cap_high=0.0)
"Weight 0, no bounds to move: what online SFT does with A < 0."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    path: str = "warm:A"
    "What the policy begins with: warm:A, warm:B, or a folder with a causal language model and its tokenizer."


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSection:
    sources: tuple[str, ...] = ()
    """What is asked: A, B, base, or paths of JSONL files; several are asked in turn, each a slice of kind env. None =
    the problems of the warm start, A for another model."""


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
    resample: int = 0
    "Dynamic sampling: further rounds of fresh prompts while groups of one verdict leave gaps; at most 3, 0 = none."


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSection:
    std: bool = True
    "Divide by the standard deviation of the group; false = R - mean (Dr.GRPO)."
    ddof: int = 1
    "1 = sample standard deviation (verl, TRL), 0 = that of the group."
    eps: float = 1e-6
    "Added to the standard deviation; verl 1e-6, TRL 1e-4."
    singleton: str = "drop"
    "A group with one verdict: drop = it leaves the batch, raw = A is its reward (verl: mean 0, std 1)."
    equal_groups: str = "drop"
    "A group with equal rewards: drop = it leaves the batch, keep = its tokens stay in the token mean with A = 0."
    unit: bool = False
    "Only the sign of A counts."


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
    micro_batch: int = 0
    "Responses per forward and backward pass; 0 = all of an update at once."
    aggregation: str = "token_mean"
    "token_mean, sequence_mean, constant_length, token_sum or balanced."
    constant_length: int = 0
    "L of constant_length; 0 = rollout.max_tokens."
    signs: str = "both"
    "both, or positive: A < 0 gets weight 0 and has no bounds to move."
    clip_grad: float = 1.0
    "Largest norm of the gradient."
    max_dead_steps: int | None = None
    "End after this many steps in a row without a usable group; none = go on."


@dataclass(frozen=True, slots=True, kw_only=True)
class KlSection:
    coef: float = 0.0
    "Of a KL penalty towards the model that the run began with; 0 = none."
    estimator: str = "k3"
    "k1, k2 or k3."

    def penalty(self) -> KlPenalty | None:
        return KlPenalty(coef=self.coef, estimator=cast(KlEstimator, self.estimator)) if self.coef > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchSection:
    correction: str = "off"
    "off, token_truncate, token_mask, sequence_truncate or sequence_mask: importance sampling for engine mismatch."
    cap: float = 2.0
    "Upper end of rho = old/infer."
    floor: float = 0.0
    "Lower end, of the masks alone."

    def built(self) -> MismatchCorrection | None:
        """Raises ConfigError."""
        if self.correction == "off":
            return None
        return MismatchCorrection(mode=cast(MismatchMode, self.correction), cap=self.cap, floor=self.floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsSection:
    pos: Pair = (0.8, 11.0)
    "[w_min, w_max] of A > 0, absolute weights."
    neg: Pair = (0.0, 101.0)
    "[w_min, w_max] of A < 0."


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    pos_w_min: Pair | None = None
    "Range that commands may move w_min of A > 0 in; none = [0, 1]."
    pos_w_max: Pair | None = None
    "None = [1, 101], [1, inf] where the objective has no upper bound."
    neg_w_min: Pair | None = None
    neg_w_max: Pair | None = None


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
    effect_every: int = 8
    "The entropy effect is measured on a random 1 of this many tokens; 0 = never."
    effect_seed: int = 17
    short_tokens: int = 5
    "A response shorter than this counts in short_frac."
    sure_run: int = 3000
    "A response with this many tokens of p > .99 in a row counts in sure_run_frac."
    rollouts_every: int = 1
    "Steps from one to the next whose responses are kept; 0 = none."
    rollouts_limit: int = 16
    "Responses of such a step that are kept, per rank: the worst, the best, others by chance."
    rollouts_texts: bool = True
    "Keep prompts, responses and token ids; false = the numbers alone."

    def rollouts(self) -> RolloutOptions | None:
        """None = none are kept."""
        if self.rollouts_every == 0:
            return None
        return RolloutOptions(every=self.rollouts_every, limit=self.rollouts_limit, texts=self.rollouts_texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    objective: str = "dispo"
    "A published objective, of loss/presets.toml: the form of its weight rule; naming it sets what its source states."
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
    advantage: AdvantageSection = field(default_factory=AdvantageSection)
    update: UpdateSection = field(default_factory=UpdateSection)
    kl: KlSection = field(default_factory=KlSection)
    mismatch: MismatchSection = field(default_factory=MismatchSection)
    bounds: BoundsSection = field(default_factory=BoundsSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    record: RecordSection = field(default_factory=RecordSection)

    def start_bounds(self) -> Bounds:
        """The bounds at start. Raises BoundsError when they make no sense."""
        pos, neg = (SignBounds(w_min=low, w_max=high) for low, high in (self.bounds.pos, self.bounds.neg))
        return Bounds(pos=pos, neg=SWITCHED_OFF.bounds if self.update.signs == "positive" else neg)

    def published_rule(self) -> WeightRule:
        """The objective's rule with the bounds of its source. Raises ConfigError for an unknown objective."""
        rule = published_rule(self.objective)
        return WeightRule(pos=rule.pos, neg=SWITCHED_OFF) if self.update.signs == "positive" else rule

    def build_objective(self, bounds: Bounds) -> Objective:
        """What is minimised under these bounds. Raises ConfigError, BoundsError."""
        return Objective(
            rule=self.published_rule().with_bounds(bounds),
            aggregation=cast(Aggregation, self.update.aggregation),
            constant_length=self.update.constant_length or self.rollout.max_tokens,
            unit_advantage=self.advantage.unit,
            kl=self.kl.penalty(),
            mismatch=self.mismatch.built(),
        )

    def accepted_limits(self) -> Limits:
        """What commands may set. Raises BoundsError, ConfigError."""
        own, fitting = self.limits, Limits.for_rule(self.published_rule())
        return Limits(
            pos=_limits(fitting.pos, own.pos_w_min, own.pos_w_max),
            neg=_limits(fitting.neg, own.neg_w_min, own.neg_w_max),
        )

    def task_sources(self) -> tuple[str, ...]:
        """The tasks that are asked."""
        own = self.model.path.removeprefix("warm:") if self.model.path.startswith("warm:") else "A"
        return self.task.sources or (own,)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values; `config_file.build` reads them back. None is left out: TOML has no null."""
        return _without_none(dataclasses.asdict(self))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _without_none(v) if isinstance(v, Mapping) else v for k, v in values.items() if v is not None}


def _limits(fitting: SignLimits | None, w_min: Pair | None, w_max: Pair | None) -> SignLimits | None:
    """None for a sign that has no bounds to move, whatever was asked."""
    if fitting is None:
        return None
    return SignLimits(w_min=w_min or fitting.w_min, w_max=w_max or fitting.w_max)
