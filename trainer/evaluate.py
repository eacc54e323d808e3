"""Accuracy on given problems, one response each: the held-out evaluation of a run and of the warm starts.

accuracy(engine, policy, ProblemStream(spec, seed=1, held_out=True).take(64), sampling, Verifier())
"""

from __future__ import annotations

from collections.abc import Sequence

from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.policy import Policy
from regimescope.trainer.rollout import RolloutEngine, SamplingSpec
from regimescope.trainer.task import Problem


def judge_answers(
    engine: RolloutEngine, policy: Policy, problems: Sequence[Problem], sampling: SamplingSpec, verifier: Verifier
) -> list[bool]:
    """Whether each response is judged correct, `sampling.n` per problem, in their order; temperature 0 is greedy."""
    rollouts = engine.generate([policy.encode(problem.text) for problem in problems], sampling)
    correct = []
    for rollout in rollouts:
        problem, ended = problems[rollout.prompt_index], rollout.finish_reason == "stop"
        text = policy.decode(rollout.token_ids)
        correct.append(verifier.verdict(text, problem.answer, ended=ended, form=problem.form).correct)
    return correct


def accuracy(
    engine: RolloutEngine, policy: Policy, problems: Sequence[Problem], sampling: SamplingSpec, verifier: Verifier
) -> float:
    """Share of those responses that are judged correct."""
    correct = judge_answers(engine, policy, problems, sampling, verifier)
    return sum(correct) / len(correct)
