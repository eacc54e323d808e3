"""JSONL tasks: what a line may hold, what a bad one says, and a stream that never mixes the two parts."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.errors import CheckpointError, ConfigError
from regimescope.trainer.jsonl_task import JsonlStream, read_jsonl
from regimescope.trainer.task import Problem, is_held_out


def written(folder: Path, *lines: object, name: str = "sums.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines))
    return path


def many(count: int) -> tuple[Problem, ...]:
    return tuple(Problem(text=f"{i}+1=", answer=str(i + 1), env="sums", form="math") for i in range(count))


def test_lines_become_problems(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        b"\xef\xbb\xbf" + json.dumps({"prompt": "1+1=", "answer": 2, "level": 5}).encode() + b"\r",
        b"  ",
        {"question": "Half?", "answer": "A half is <<1/2=0.5>>0.5\n#### 0.5", "env": "halves"},
        {"prompt": "Much?", "answer": "2000 is\n#### 12,345,678"},
        {"prompt": "Root?", "answer": "$\\sqrt{2}$"},
        {"prompt": "Tiny?", "answer": 1e-7},
        {"prompt": "Huge?", "answer": 1e30},
        {"prompt": "Pair?", "answer": "(1,234)"},
        {"prompt": "Day?", "answer": "Monday"},
        {"prompt": "Time? \u2028 \U0001f552", "answer": "3:00"},
    )
    problems = read_jsonl(path)
    answers = ["2", "0.5", "12345678", "$\\sqrt{2}$", "0.0000001", f"1{'0' * 30}", "(1,234)", "Monday", "3:00"]
    assert [p.answer for p in problems] == answers
    assert [p.env for p in problems] == ["sums", "halves", *["sums"] * 7]
    assert [p.source for p in problems[:3]] == ["sums.jsonl:1", "sums.jsonl:3", "sums.jsonl:4"]
    assert {p.form for p in problems} == {"math"}
    assert problems[8].text == "Time? \u2028 \U0001f552"


def test_a_real_gsm8k_line(tmp_path: Path) -> None:
    """The first of its training set (Cobbe et al. 2021, MIT licence), and how answers to it are judged."""
    question = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips did Natalia sell altogether in April and May?"  # noqa: E501
    answer = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nNatalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n#### 72"  # noqa: E501
    (problem,) = read_jsonl(written(tmp_path, {"question": question, "answer": answer}))
    assert (problem.text, problem.answer) == (question, "72")
    verifier = Verifier()
    assert verifier.verdict(answer, problem.answer, ended=True, form=problem.form).correct
    assert not verifier.verdict(answer + "0", problem.answer, ended=True, form=problem.form).correct


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON"),
        (b"prompt,answer", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"prompt": "a", "answer": NaN}', "not JSON"),
        (b'{"prompt": "a", "answer": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"prompt": "\xff", "answer": 1}', "byte 13 is not UTF-8"),
        ([1], "a list, not an object"),
        ("text", "text, not an object"),
        (None, "null, not an object"),
        ({}, "no prompt (or question)"),
        ({"answer": 1, "problem": "a"}, "('answer', 'problem')"),
        ({"prompt": "a", "solution": 1}, "no answer"),
        ({"prompt": "", "answer": 1}, "prompt is empty"),
        ({"prompt": " \n", "answer": 1}, "prompt is empty"),
        ({"prompt": ["a"], "answer": 1}, "prompt is a list"),
        ({"question": 5, "answer": 1}, "question is a number"),
        ({"prompt": "\ud800", "answer": 1}, "surrogate"),
        ({"prompt": "a", "answer": ""}, "answer is empty"),
        ({"prompt": "a", "answer": "so\n#### "}, "nothing after its last ####"),
        ({"prompt": "a", "answer": None}, "answer is null"),
        ({"prompt": "a", "answer": True}, "answer is true or false"),
        ({"prompt": "a", "answer": {"value": 1}}, "answer is an object"),
        (b'{"prompt": "a", "answer": 1e999}', "a finite number"),
        ({"prompt": "a", "answer": 10**600}, "601 characters"),
        ({"prompt": "a", "answer": "x" * 501}, "501 characters"),
        ({"prompt": "a", "answer": "6}"}, "unbalanced braces"),
        ({"prompt": "a", "answer": "6\x00"}, "control characters"),
        ({"prompt": "a", "answer": "\\frac{"}, "unbalanced braces"),
        ({"prompt": "a", "answer": "\\frac{1}"}, "nothing that math-verify can read"),
        ({"prompt": "a", "answer": "1/0"}, "math-verify"),
        ({"prompt": "a", "answer": 1, "env": ""}, "env is empty"),
        ({"prompt": "a", "answer": 1, "env": 3}, "env is a number"),
        ({"prompt": "a", "answer": 1, "env": "a\nb"}, "printable"),
        ({"prompt": "a", "answer": 1, "env": "e" * 65}, "at most 64"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, says: str) -> None:
    path = written(tmp_path, {"prompt": "1+1=", "answer": 2}, b"", line)
    with pytest.raises(ConfigError) as caught:
        read_jsonl(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:3: ")
    assert says in message
    assert len(message.splitlines()) == 1 and len(message) < 600


def test_no_file_no_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jsonl(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jsonl(tmp_path)
    for text in (b"", b"\n \n", b"\xef\xbb\xbf"):
        with pytest.raises(ConfigError, match="no problem in it"):
            read_jsonl(written(tmp_path, text))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert len(read_jsonl(written(tmp_path, {"prompt": "a", "answer": 1}))) == 1
    assert len(read_jsonl(written(tmp_path, {"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 1}))) == 2


def test_every_epoch_asks_each_problem_once_in_another_order() -> None:
    stream = JsonlStream(many(100), seed=3)
    size = len(stream.problems)
    first, second = stream.take(size), stream.take(size)
    assert Counter(first) == Counter(second) == Counter(stream.problems)
    assert first != second
    assert first != list(stream.problems)
    again, other = JsonlStream(many(100), seed=3), JsonlStream(many(100), seed=4)
    assert [*again.take(7), *again.take(size - 7)] == first
    assert other.take(size) != first


def test_training_and_evaluation_share_no_problem() -> None:
    train, held = JsonlStream(many(400), seed=0), JsonlStream(many(400), seed=0, held_out=True)
    assert not train.shared and not held.shared
    assert set(train.problems) | set(held.problems) == set(many(400))
    assert not set(train.problems) & set(held.problems)
    assert all(is_held_out(problem.text) for problem in held.problems)


def test_a_small_file_is_evaluated_on_its_own_problems() -> None:
    one_part = tuple(problem for problem in many(200) if not is_held_out(problem.text))
    held = tuple(problem for problem in many(200) if is_held_out(problem.text))
    for problems in (many(1), one_part[:5] + held[:2], one_part, held):
        for held_out in (False, True):
            stream = JsonlStream(problems, seed=0, held_out=held_out)
            assert stream.shared
            assert stream.problems == problems
    assert not JsonlStream(one_part[:6] + held[:2], seed=0).shared
    assert JsonlStream(many(1), seed=0).take(3) == list(many(1)) * 3


@given(seed=st.integers(0, 99), before=st.integers(0, 70), after=st.integers(1, 70))
@settings(deadline=None)
def test_state_survives_json_and_continues_the_stream(seed: int, before: int, after: int) -> None:
    stream = JsonlStream(many(30), seed=seed)
    stream.take(before)
    state = json.loads(json.dumps(stream.state()))
    expected = stream.take(after)
    other = JsonlStream(many(30), seed=seed)
    other.restore(state)
    assert other.take(after) == expected


def test_another_file_cannot_continue_a_checkpoint() -> None:
    state = JsonlStream(many(30), seed=0).state()
    with pytest.raises(CheckpointError, match="other problems"):
        JsonlStream(many(31), seed=0).restore(state)
