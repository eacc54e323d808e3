"""The task: problems, the two parts that never meet, and the noisy solutions."""

import json
import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regimescope.trainer.task import HELD_OUT_SHARE, TASKS, Problem, ProblemStream, TaskSpec, draw_solution, is_held_out

LINE = re.compile(r"([CW]?)(-?\d+)((?:[+-]\d)+)=(-?\d+);")


def running_totals(problem: Problem) -> list[int]:
    first, *rest = re.findall(r"[+-]?\d", problem.text)
    totals = [int(first)]
    for operation in rest:
        totals.append(totals[-1] + int(operation))
    return totals


@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(TASKS)))
def test_problems_are_well_formed(seed: int, name: str) -> None:
    spec = TASKS[name]
    for problem in ProblemStream(spec, seed=seed).take(5):
        assert re.fullmatch(r"[1-9]([+-][1-9])+=", problem.text)
        totals = running_totals(problem)
        assert spec.operands[0] <= len(totals) <= spec.operands[1]
        assert all(0 <= total <= spec.top for total in totals)
        assert problem.answer == totals[-1]
        assert problem.env == "chain"


def test_the_same_seed_gives_the_same_problems_and_another_gives_others() -> None:
    first, again, other = (ProblemStream(TASKS["A"], seed=seed).take(50) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_training_and_evaluation_share_no_problem() -> None:
    train = {problem.text for problem in ProblemStream(TASKS["B"], seed=0).take(3000)}
    held = {problem.text for problem in ProblemStream(TASKS["B"], seed=0, held_out=True).take(1000)}
    assert not train & held
    assert not any(map(is_held_out, train))
    assert all(map(is_held_out, held))


def test_the_held_out_part_has_its_share_and_is_as_hard() -> None:
    spec = TaskSpec()
    train = ProblemStream(spec, seed=1).take(4000)
    held = ProblemStream(spec, seed=1, held_out=True).take(4000)
    rng = random.Random(0)
    texts = {"".join(rng.choice("123456789+-") for _ in range(9)) for _ in range(8000)}
    assert sum(map(is_held_out, texts)) / len(texts) == pytest.approx(1 / HELD_OUT_SHARE, abs=0.02)
    lengths = [sum(len(problem.text) for problem in part) / 4000 for part in (train, held)]
    assert lengths[0] == pytest.approx(lengths[1], abs=0.25)


def test_state_survives_json_and_continues_the_stream() -> None:
    stream = ProblemStream(TASKS["A"], seed=7)
    stream.take(10)
    state = json.loads(json.dumps(stream.state()))
    expected = stream.take(20)
    other = ProblemStream(TASKS["A"], seed=0)
    other.restore(state)
    assert other.take(20) == expected


@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(TASKS)))
def test_solutions_have_the_grammar_and_end_in_the_running_result(seed: int, name: str) -> None:
    spec, rng = TASKS[name], random.Random(seed)
    for problem in ProblemStream(spec, seed=seed).take(5):
        solution = draw_solution(problem, spec, rng)
        assert len(solution) <= spec.max_chars
        work, _, answer = solution.rpartition("#")
        lines = LINE.findall(work)
        assert "".join(f"{kind}{start}{rest}={result};" for kind, start, rest, result in lines) == work
        if lines:
            assert answer == lines[-1][3]
        for before, after in pairwise(lines):
            if after[0]:  # a restated step: C keeps the result, W changes it
                assert after[1:3] == before[1:3]
                assert (after[3] == before[3]) == (after[0] == "C")
            else:
                assert after[1] == before[3]


def test_noise_and_styles_come_as_often_as_asked() -> None:
    spec, rng = TaskSpec(noise=0.1, checks=0.3, bare=0.25, pairs=0.0, max_chars=500), random.Random(0)
    problems = ProblemStream(spec, seed=0).take(4000)
    solutions = [draw_solution(problem, spec, rng) for problem in problems]
    bare = [pair for pair in zip(solutions, problems, strict=True) if pair[0].startswith("#")]
    assert len(bare) / 4000 == pytest.approx(0.25, abs=0.03)
    wrong_bare = [solution != f"#{problem.answer}" for solution, problem in bare]
    assert sum(wrong_bare) / len(bare) == pytest.approx(0.3 * 0.93, abs=0.06)  # some noise is cut off at 0
    firsts = [LINE.match(solution) for solution in solutions if not solution.startswith("#")]
    right = [eval(f"{first[2]}{first[3]}") == int(first[4]) for first in firsts if first]
    assert sum(right) / len(right) == pytest.approx(0.9, abs=0.03)


def test_without_noise_every_solution_is_right() -> None:
    spec, rng = TaskSpec(noise=0.0), random.Random(0)
    for problem in ProblemStream(spec, seed=0).take(500):
        solution = draw_solution(problem, spec, rng)
        assert solution.rpartition("#")[2] == str(problem.answer)
        assert "W" not in solution
