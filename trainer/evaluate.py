"""Accuracy on given problems, one response each: the held-out evaluation of a run and of the warm starts.

accuracy(engine, policy, ProblemStream(spec, seed=1, held_out=True).take(64), sampling, Verifier())
"""

from __future__ import annotations

from collections.abc import Sequence

from regimescope.trainer.policy import Policy
from regimescope.trainer.rollout import RolloutEngine, SamplingSpec
from regimescope.trainer.task import Problem
from regimescope.trainer.verifier import Verifier


def accuracy(
    engine: RolloutEngine, policy: Policy, problems: Sequence[Problem], sampling: SamplingSpec, verifier: Verifier
) -> float:
    """Share of the responses (`sampling.n` per problem; temperature 0 is greedy) that are judged correct."""
    rollouts = engine.generate([policy.encode(problem.text) for problem in problems], sampling)
    verdicts = [
        verifier.verdict(
            policy.decode(rollout.token_ids),
            problems[rollout.prompt_index].answer,
            ended=rollout.finish_reason == "stop",
        )
        for rollout in rollouts
    ]
    return sum(verdict.correct for verdict in verdicts) / len(verdicts)
