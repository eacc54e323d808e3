"""Runs in TRL's environment for `trl_losses`: our policy loss and TRL's, side by side in one process.

    python -m benchmarks._trl_losses_worker GOLDEN.json MODEL_FOLDER      prints one JSON object per case

TRL's own code does everything but two things: which tokens were generated, and what their log-probabilities are. So a
real GRPOTrainer pads, masks, counts, corrects for the engine and evaluates its loss; see `Peer`. All in float64.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import torch
from benchmarks._trl_batches import GROUP, LONGEST, ROWS, Batch, golden_batch, random_batch
from datasets import Dataset
from torch import Tensor
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.trainer.advantages import group_advantages
from regimescope.trainer.loss.aggregation import token_weights
from regimescope.trainer.loss.mismatch import MismatchCorrection, MismatchMode
from regimescope.trainer.loss.objective import KlPenalty, Objective, PolicyLoss, policy_loss
from regimescope.trainer.loss.published import published

RANDOM_BATCHES = 20
EOS, OTHER = 1, 5
"Ids of the warm start: the end token, and any other token."


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One objective in both notations."""

    name: str
    objective: Objective
    trl: dict[str, Any] = field(default_factory=dict)
    "What GRPOConfig gets."
    updates: int = 1
    "Equal parts that a generation batch is cut into."
    accumulate: bool = False
    "The parts are micro-batches of one update; else each is an update."
    hidden_rows: bool = False
    "TRL's mask_truncated_completions hides some rows."
    divisor: Callable[[Batch], Tensor] | None = None
    "[B] what TRL divides a token's loss by, where that is not what we divide by: handed over as `token_weight`."


@dataclass(slots=True, kw_only=True)
class Result:
    """Largest differences of one case."""

    name: str
    loss: float = 0.0
    gradient: float = 0.0
    "With respect to logp_new."
    relative: float = 0.0
    "Of both, over the largest number in TRL's loss and gradient."
    clip: float | None = None
    "Of the clip fractions; None where TRL does not count them by token."
    compared: int = 0
    "Losses."
    tokens: int = 0
    clipped: int = 0
    "Tokens that our rule clips."


def cases() -> list[Case]:
    """All that TRL has of ours."""
    grpo, dapo, dr_grpo = published("grpo"), published("dapo"), published("dr-grpo", constant_length=LONGEST)
    as_grpo = {"loss_type": "grpo", "epsilon": 0.2}
    as_dapo = {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}
    as_dr_grpo = {"loss_type": "dr_grpo", "epsilon": 0.2, "max_completion_length": LONGEST}
    by_sequence = {"importance_sampling_level": "sequence"}
    as_gspo = {"loss_type": "grpo", "epsilon": 3e-4, "epsilon_high": 4e-4} | by_sequence
    plain_kl = {"beta": 0.04, "use_bias_correction_kl": False}
    kl_dapo, capped_s = replace(dapo, kl=KlPenalty(coef=0.04)), SignRule(base="s", cap_high=1.0004)
    cispo_s = Objective(rule=WeightRule(pos=capped_s, neg=capped_s))
    return [
        Case(name="grpo, KL k3 0.04", objective=grpo, trl=as_grpo | plain_kl),
        Case(name="dapo", objective=dapo, trl=as_dapo),
        Case(name="dapo (loss_type bnpo)", objective=dapo, trl=as_dapo | {"loss_type": "bnpo"}),
        Case(name="dapo, KL k3 0.04", objective=kl_dapo, trl=as_dapo | plain_kl),
        Case(name="dapo-dual-clip (delta 3)", objective=published("dapo-dual-clip"), trl=as_dapo | {"delta": 3.0}),
        Case(name="dr-grpo", objective=dr_grpo, trl=as_dr_grpo),
        Case(name="cispo (cap 101)", objective=published("cispo"), trl=as_cispo(101.0)),
        Case(name="cispo-scalerl (cap 5)", objective=published("cispo-scalerl"), trl=as_cispo(5.0)),
        Case(name="cispo on s (cap 1.0004)", objective=cispo_s, trl=as_cispo(1.0004) | by_sequence),
        Case(name="gspo", objective=published("gspo"), trl=as_gspo),
        *(corrected(dapo, as_dapo, mode) for mode in get_args(MismatchMode)),
        Case(name="dapo, 2 micro-batches", objective=dapo, trl=as_dapo, updates=2, accumulate=True),
        Case(name="dapo, 2 updates *", objective=dapo, trl=as_dapo, updates=2, divisor=half_of_the_rollout),
        Case(name="grpo, hidden rows *", objective=replace(grpo, kl=None), trl=as_grpo, hidden_rows=True,
             divisor=lambda batch: len(batch.mask) * batch.mask.sum(1).clamp_min(1).double()),
        Case(name="dr-grpo, hidden rows *", objective=dr_grpo, trl=as_dr_grpo, hidden_rows=True,
             divisor=lambda batch: torch.full((len(batch.mask),), len(batch.mask) * LONGEST, dtype=torch.float64)),
    ]  # fmt: skip


def as_cispo(cap: float) -> dict[str, Any]:
    """TRL's epsilon_high is the absolute cap here."""
    return {"loss_type": "cispo", "epsilon_high": cap}


def corrected(dapo: Objective, as_dapo: dict[str, Any], mode: MismatchMode) -> Case:
    """DAPO with a correction for engine mismatch; our truncation has no lower end, so TRL's is off there."""
    low = 0.5 if mode.endswith("mask") else None
    limits = {"vllm_importance_sampling_clip_max": 2.0, "vllm_importance_sampling_clip_min": low}
    correction = MismatchCorrection(mode=mode, cap=2.0, floor=low or 0.0)
    return Case(
        name=f"dapo, {mode}",
        objective=replace(dapo, mismatch=correction),
        trl=as_dapo | limits | {"vllm_importance_sampling_mode": mode},
    )


def half_of_the_rollout(batch: Batch) -> Tensor:
    """TRL's token mean of one update of two: it divides by the mean number of tokens of the rollout's updates."""
    return (batch.mask.sum() / 2).double().expand(len(batch.mask))


class Peer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer with given tokens and log-probabilities; nothing else of it is replaced."""

    batch: Batch
    rewards: list[float | None]
    new: Tensor
    "Leaf of the gradient."

    def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
        lengths = self.batch.mask.sum(1).tolist()
        ids = [[OTHER] * (max(n, 1) - 1) + [EOS if n else OTHER] for n in lengths]  # no end token: it hides the row
        reported = [row[:n].tolist() for row, n in zip(self.batch.infer, lengths, strict=True)]
        return [[OTHER]] * len(ids), ids, None, [""] * len(ids), reported if self.use_vllm else None, {}, None, []

    def _get_per_token_logps_and_entropies(self, model: Any, *_: Any, **__: Any) -> tuple[Tensor, Tensor, None]:
        given = self.batch.ref if model is self.ref_model else self.new if torch.is_grad_enabled() else self.batch.old
        return given, torch.zeros_like(given), None

    def rollout(self, batch: Batch, rewards: list[float | None]) -> dict[str, Any]:
        """What TRL makes of the generated batch before any loss."""
        self.batch, self.rewards = batch, rewards
        return dict(self._generate_and_score_completions([{"prompt": "1"}] * len(batch.mask)))

    def losses(self, batch: Batch, updates: int) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """(part, loss, gradient [B, T]) of each part of the batch, with its given advantages."""
        out = self.rollout(batch, [0.0] * len(batch.mask)) | {"advantages": batch.advantages}
        size = len(batch.mask) // updates
        for i, inputs in enumerate(split_tensor_dict(out, updates)):
            part = batch.rows(i * size, size)
            self.new = part.new.clone().requires_grad_()
            loss = self._compute_loss(self.model, inputs)
            loss.backward()
            yield part, loss.detach(), self.new.grad

    def clip_fractions(self) -> list[float] | None:
        """Of the last loss: A < 0 low, A > 0 high, over all tokens; None where TRL counts sequences."""
        logged = self._metrics["train"]
        if self.importance_sampling_level == "sequence":
            return None
        if self.loss_type == "cispo":
            return [0.0, logged["cispo_clip_ratio"][-1]]
        return [logged["clip_ratio/low_mean"][-1], logged["clip_ratio/high_mean"][-1]]


def make_peer(case: Case, rows: int, group: int, folder: str, model: str) -> Peer:
    """A trainer of `rows` responses, `group` of them to a prompt."""
    config = GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, report_to="none", save_strategy="no", num_iterations=2,
        per_device_train_batch_size=rows // case.updates, steps_per_generation=case.updates,
        gradient_accumulation_steps=case.updates if case.accumulate else 1, num_generations=group,
        mask_truncated_completions=case.hidden_rows, **case.trl,
    )  # fmt: skip
    peer = Peer(
        model=model,
        reward_funcs=lambda completions, **_: peer.rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1"] * rows}),
    )
    peer.current_gradient_accumulation_steps = config.gradient_accumulation_steps  # `train` sets it
    peer.use_vllm = case.objective.mismatch is not None  # not before: its constructor looks for vLLM
    peer.model.train()
    return peer


def compare(case: Case, batches: list[Batch], group: int, folder: str, model: str, result: Result) -> None:
    """Add the differences over the batches, all of one number of rows, to `result`."""
    peer = make_peer(case, len(batches[0].mask), group, folder, model)
    for batch in batches:
        weights, first = own_weights(batch, case), 0
        for part, loss, gradient in peer.losses(batch, case.updates):
            last = first + len(part.mask)
            new = part.new.clone().requires_grad_()
            ours = policy_loss(
                new, part.old, part.advantages, part.mask, case.objective, logp_ref=part.ref, logp_infer=part.infer,
                token_weight=None if weights is None else weights[first:last],
            )  # fmt: skip
            ours.loss.backward()
            first = last
            off = (abs(ours.loss.item() - loss.item()), (new.grad - gradient).abs().max().item())
            scale = max(abs(loss.item()), gradient.abs().max().item())
            result.loss, result.gradient = max(result.loss, off[0]), max(result.gradient, off[1])
            result.relative = max(result.relative, max(off) / scale if scale else max(off))
            theirs = peer.clip_fractions()
            if theirs is not None:
                apart = [abs(a - b) for a, b in zip(clip_fractions(ours), theirs, strict=True)]
                result.clip = max([result.clip or 0.0, *apart])
            result.compared += 1
            result.tokens += ours.terms.weight.numel()
            result.clipped += int((ours.terms.clip_low | ours.terms.clip_high).sum())


def own_weights(batch: Batch, case: Case) -> Tensor | None:
    """`token_weight` of the whole generation batch; None = the part is the update, and our own aggregation holds."""
    if case.divisor is not None:
        return (batch.mask.sum(1) > 0) / case.divisor(batch)
    if not case.accumulate:
        return None
    return token_weights(batch.mask.sum(1), batch.advantages, case.objective.aggregation)


def clip_fractions(ours: PolicyLoss) -> list[float]:
    """As `Peer.clip_fractions` counts."""
    terms, count = ours.terms, max(1, ours.terms.weight.numel())
    low, high = terms.clip_low & (terms.advantage < 0), terms.clip_high & (terms.advantage > 0)
    return [low.sum().item() / count, high.sum().item() / count]


def compare_advantages(folder: str, model: str, result: Result) -> None:
    """TRL's advantages (ddof 1, eps 1e-4, float32) against ours with its eps; equal rewards, missing verdicts."""
    peer = make_peer(Case(name="", objective=published("dapo")), ROWS, GROUP, folder, model)
    for seed in range(RANDOM_BATCHES):
        generator = torch.Generator().manual_seed(seed)
        rewards = torch.randint(0, 2, (ROWS // GROUP, GROUP), generator=generator) * 2.0 - 1
        rewards[0, 0] = float("nan") if seed % 2 else 0.5
        given = [None if x != x else x for x in rewards.flatten().tolist()]
        theirs = peer.rollout(random_batch(seed, hidden_rows=False), given)["advantages"]
        ours = group_advantages(rewards, eps=1e-4).advantages.flatten()
        result.gradient = max(result.gradient, (ours - theirs).abs().max().item())
        result.relative = max(result.relative, result.gradient / theirs.abs().max().clamp_min(1.0).item())
        result.compared += 1


def main(golden: str, model: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)  # TRL warns about settings that are the point here
    disable_progress_bar()
    fixture, results = golden_batch(Path(golden)), []
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        for case in cases():
            results.append(Result(name=case.name))
            batches = [random_batch(seed, hidden_rows=case.hidden_rows) for seed in range(RANDOM_BATCHES)]
            compare(case, batches, GROUP, folder, model, results[-1])
            if case.updates == 1:  # five rows do not split
                compare(case, [fixture], len(fixture.mask), folder, model, results[-1])
        results.append(Result(name="advantages (eps 1e-4)"))
        compare_advantages(folder, model, results[-1])
    for result in results:
        print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main(*sys.argv[1:])
