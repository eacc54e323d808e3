"""One step's rollouts: problems asked, responses sampled and judged, and `old`, the trainer's own log-probabilities of
the weights that sampled them.

`sample(...)` is what both the training step and the held-out evaluation call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regimescope.trainer.advantages import overlong_penalty
from regimescope.trainer.policy import Policy, token_logps
from regimescope.trainer.responses import Response
from regimescope.trainer.rollout import RolloutEngine, SamplingSpec
from regimescope.trainer.task import Problem
from regimescope.trainer.verifier import Verifier

OLD_ROWS = 64
"Rows per forward pass when `old` is evaluated."


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The responses to some problems, grouped by problem: n = problems x group."""

    prompts: list[list[int]]
    "[n] token ids."
    responses: list[Response]
    "[n]"
    rewards: Tensor
    "[problems, group] float32: +1, -1, less the overlong penalty; NaN where there is no verdict."
    weight_version: int
    "Version of the weights that generated them."


def sample(
    policy: Policy,
    engine: RolloutEngine,
    verifier: Verifier,
    problems: Sequence[Problem],
    spec: SamplingSpec,
    *,
    overlong: int = 0,
) -> Judged:
    """Ask the engine for `spec.n` responses to each problem and judge every one. Raises EngineError, PolicyError.

    `overlong`: tokens before `spec.max_tokens` over which the reward falls.
    """
    prompts = [policy.encode(problem.text) for problem in problems]
    rollouts = engine.generate(prompts, spec)
    responses, rewards = [], []
    for rollout in rollouts:
        ended = rollout.finish_reason == "stop"
        text = policy.decode(rollout.token_ids)
        verdict = verifier.verdict(text, problems[rollout.prompt_index].answer, ended=ended)
        responses.append(Response(token_ids=rollout.token_ids, ended=ended, outcome=verdict.outcome))
        rewards.append(verdict.reward + overlong_penalty(len(rollout.token_ids), limit=spec.max_tokens, cache=overlong))
    return Judged(
        prompts=[prompts[rollout.prompt_index] for rollout in rollouts],
        responses=responses,
        rewards=torch.tensor(rewards).view(len(problems), spec.n),
        weight_version=rollouts[0].weight_version,
    )


def evaluate_old(policy: Policy, judged: Judged, temperature: float) -> tuple[list[Tensor], float]:
    """(`old` of each response [length], summed entropy of all tokens in nats), with the weights as they are now: call
    it before any update."""
    sequences = [
        [*prompt, *response.token_ids] for prompt, response in zip(judged.prompts, judged.responses, strict=True)
    ]
    starts = [len(prompt) for prompt in judged.prompts]
    order = sorted(
        range(len(sequences)), key=lambda i: len(sequences[i])
    )  # rows of similar length share a forward pass
    old: list[Tensor] = [torch.empty(0)] * len(sequences)
    entropy = 0.0
    with torch.no_grad():
        for first in range(0, len(order), OLD_ROWS):
            rows = order[first : first + OLD_ROWS]
            out = token_logps(policy, [sequences[i] for i in rows], [starts[i] for i in rows], temperature=temperature)
            entropy += out.entropy[out.valid].double().sum().item()
            lengths = out.valid.sum(1).tolist()
            for i, piece in zip(rows, torch.split(out.logp[out.valid], lengths), strict=True):
                old[i] = piece
    return old, entropy
