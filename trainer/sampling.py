"""One step's rollouts: problems asked, responses sampled and judged, and `old`, the trainer's own log-probabilities of
the weights that sampled them.

`sample(...)` is one round, `dynamic_sampling(...)` as many as it takes to fill the batch, `evaluate(...)` the
log-probabilities of a policy: `old` right after sampling, `ref` of a reference. With several ranks each does its share
of a round; `joined(ranks.gather(...))` and `evaluated_by_all(...)` give every rank the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regimescope.trainer.advantages import overlong_penalty
from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.policy import Policy, token_logps
from regimescope.trainer.ranks import Ranks
from regimescope.trainer.responses import Response
from regimescope.trainer.rollout import RolloutEngine, SamplingSpec
from regimescope.trainer.task import Problem

EVALUATION_ROWS = 64
"Rows per forward pass when log-probabilities are evaluated."


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The responses to some problems, grouped by problem: n = problems x group."""

    prompts: list[list[int]]
    "[n] token ids."
    responses: list[Response]
    "[n]; their `logps` are `infer`, what the engine reported."
    rewards: Tensor
    "[problems, group] float32: +1, -1, less the overlong penalty; NaN where there is no verdict."
    weight_version: int
    "Version of the weights that generated them."

    @property
    def group(self) -> int:
        """Responses per problem."""
        return self.rewards.shape[1]

    def rows_of(self, groups: Sequence[int]) -> list[int]:
        """Places of the responses to some of the problems."""
        return [group * self.group + i for group in groups for i in range(self.group)]

    def groups_of(self, env: str) -> list[int]:
        """The problems of one task."""
        return [i for i in range(len(self.rewards)) if self.responses[i * self.group].env == env]

    def of_groups(self, groups: Sequence[int]) -> Judged:
        """The responses to some of the problems."""
        rows = self.rows_of(groups)
        return Judged(
            prompts=[self.prompts[row] for row in rows],
            responses=[self.responses[row] for row in rows],
            rewards=self.rewards[list(groups)],
            weight_version=self.weight_version,
        )


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

    `overlong`: tokens before `spec.max_tokens` over which the reward falls. No problem (a rank without a share): none.
    """
    prompts = [policy.encode(problem.text) for problem in problems]
    rollouts = engine.generate(prompts, spec) if prompts else []
    responses, rewards = [], []
    for rollout in rollouts:
        problem, ended = problems[rollout.prompt_index], rollout.finish_reason == "stop"
        text = policy.decode(rollout.token_ids)
        verdict = verifier.verdict(text, problem.answer, ended=ended, form=problem.form)
        response = Response(
            token_ids=rollout.token_ids,
            ended=ended,
            outcome=verdict.outcome,
            text=text,
            logps=rollout.logprobs,
            env=problem.env,
        )
        responses.append(response)
        rewards.append(verdict.reward + overlong_penalty(len(rollout.token_ids), limit=spec.max_tokens, cache=overlong))
    return Judged(
        prompts=[prompts[rollout.prompt_index] for rollout in rollouts],
        responses=responses,
        rewards=torch.tensor(rewards).view(len(problems), spec.n),
        weight_version=rollouts[0].weight_version if rollouts else engine.health().weight_version,
    )


def joined(parts: Sequence[Judged]) -> Judged:
    """The shares of all ranks, or several rounds, as one; `parts` itself where there is one."""
    if len(parts) == 1:
        return parts[0]
    return Judged(
        prompts=[prompt for part in parts for prompt in part.prompts],
        responses=[response for part in parts for response in part.responses],
        rewards=torch.cat([part.rewards for part in parts]),
        weight_version=parts[0].weight_version,
    )


def dynamic_sampling(draw: Callable[[int], Judged], *, rounds: int) -> tuple[Judged, list[int]]:
    """(all responses of all rounds, the groups of them to train on).

    Without further rounds those are all. Else groups with both verdicts alone, as many as the first round has problems
    (DAPO, arXiv 2503.14476 eq. 11); after `rounds` further ones the step trains on what there is. `draw(round)` samples
    a round of fresh problems with the weights as they are.
    """
    first = draw(0)
    wanted = len(first.rewards)
    if rounds == 0:
        return first, list(range(wanted))
    parts, mixed = [first], both_verdicts(first)
    while len(mixed) < wanted and len(parts) <= rounds:
        more = draw(len(parts))
        before = sum(len(part.rewards) for part in parts)
        mixed += [before + group for group in both_verdicts(more)]
        parts.append(more)
    return joined(parts), mixed[:wanted]


def both_verdicts(judged: Judged) -> list[int]:
    """Groups with a correct and an incorrect response."""
    outcomes = [
        {r.outcome for r in judged.responses[i : i + judged.group]}
        for i in range(0, len(judged.responses), judged.group)
    ]
    return [group for group, found in enumerate(outcomes) if {"correct", "incorrect"} <= found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What a policy thinks of responses, n of them."""

    logps: list[Tensor]
    "[n] of [length], nats."
    entropy: Tensor
    "[n] float64: entropy summed over the tokens of each response, nats."
    entropies: list[Tensor] = field(default_factory=list)
    "[n] of [length], nats, of its tokens; empty = not kept."


def evaluate(policy: Policy, judged: Judged, temperature: float) -> Evaluated:
    """Log-probabilities and entropies with the weights as they are now: for `old`, call it before any update."""
    sequences = [
        [*prompt, *response.token_ids] for prompt, response in zip(judged.prompts, judged.responses, strict=True)
    ]
    starts = [len(prompt) for prompt in judged.prompts]
    order = sorted(
        range(len(sequences)), key=lambda i: len(sequences[i])
    )  # rows of similar length share a forward pass
    logps: list[Tensor] = [torch.empty(0)] * len(sequences)
    entropies = logps.copy()
    entropy = torch.zeros(len(sequences), dtype=torch.float64)
    with torch.no_grad():
        for first in range(0, len(order), EVALUATION_ROWS):
            rows = order[first : first + EVALUATION_ROWS]
            out = token_logps(policy, [sequences[i] for i in rows], [starts[i] for i in rows], temperature=temperature)
            entropy[rows] = out.entropy.double().sum(1).cpu()
            lengths = out.valid.sum(1).tolist()
            pieces = torch.split(out.logp[out.valid], lengths), torch.split(out.entropy[out.valid], lengths)
            for i, piece, per_token in zip(rows, *pieces, strict=True):
                logps[i], entropies[i] = piece, per_token
    return Evaluated(logps=logps, entropy=entropy, entropies=entropies)


def evaluated_by_all(ranks: Ranks, own: Evaluated) -> Evaluated:
    """What every rank found of its share, in the order of the ranks."""
    if ranks.size == 1:
        return own
    flat = torch.cat([*own.logps, torch.empty(0)])  # one tensor: pickled one by one, each would carry its whole storage
    lengths = [len(piece) for piece in own.logps]
    parts = ranks.gather((flat.cpu(), lengths, own.entropy))
    return Evaluated(
        logps=[piece for logps, sizes, _ in parts for piece in torch.split(logps, sizes)],
        entropy=torch.cat([entropy for _, _, entropy in parts]),
    )
