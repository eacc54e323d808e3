"""Held-out accuracy: every response counts once, and only the verifier decides."""

import pytest

from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.evaluate import accuracy
from regimescope.trainer.policy import load_policy
from regimescope.trainer.rollout import SamplingSpec, make_engine
from regimescope.trainer.task import TASKS, ProblemStream


def test_accuracy_is_the_share_of_correct_responses() -> None:
    policy = load_policy("warm:B")
    engine = make_engine("transformers", policy)
    problems = ProblemStream(TASKS["B"], seed=5, held_out=True).take(16)
    sampling = SamplingSpec(n=4, max_tokens=96, seed=2)
    rollouts = engine.generate([policy.encode(problem.text) for problem in problems], sampling)
    right = [
        rollout.finish_reason == "stop"
        and policy.decode(rollout.token_ids).rpartition("#")[1:] == ("#", str(problems[rollout.prompt_index].answer))
        for rollout in rollouts
    ]
    assert 0 < sum(right) < 64
    assert accuracy(engine, policy, problems, sampling, Verifier()) == pytest.approx(sum(right) / 64)


def test_what_never_ends_is_wrong() -> None:
    policy = load_policy("warm:B")
    engine = make_engine("transformers", policy)
    problems = ProblemStream(TASKS["B"], seed=5, held_out=True).take(8)
    easy = Verifier(judge=lambda answer, span: True)
    assert accuracy(engine, policy, problems, SamplingSpec(n=1, max_tokens=2, seed=0), easy) == 0.0
