"""Several tasks as one stream: equal shares, streams that do not disturb each other, and what is refused at start."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regimescope.trainer.errors import CheckpointError, ConfigError, PolicyError
from regimescope.trainer.task import TASKS, Problem, ProblemStream, is_held_out
from regimescope.trainer.task_mix import open_tasks
from regimescope.trainer.tokenizer import build_tokenizer


def sums(folder: Path, name: str = "sums.jsonl", count: int = 40, **more: object) -> str:
    path = folder / name
    path.write_text("\n".join(json.dumps({"prompt": f"{i}+2=", "answer": i + 2} | more) for i in range(count)))
    return str(path)


def unlabelled(problems: Sequence[Problem]) -> list[Problem]:
    return [replace(problem, env="") for problem in problems]


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.parametrize("held_out", [False, True])
def test_a_single_source_is_its_stream(name: str, held_out: bool) -> None:
    mix, stream = (
        open_tasks([name], seed=5, held_out=held_out),
        ProblemStream(TASKS[name], seed=5, held_out=held_out),
    )
    assert unlabelled(mix.take(50)) == unlabelled(stream.take(50))
    assert mix.envs == (f"chain-{name}",) == tuple({problem.env for problem in mix.take(5)})
    state = stream.state()  # a checkpoint written before there were several tasks
    mix.restore(json.loads(json.dumps(state)))
    assert mix.state() == state


def test_sources_are_asked_in_turn(tmp_path: Path) -> None:
    mix = open_tasks(["A", sums(tmp_path), "B"], seed=0)
    assert mix.envs == ("chain-A", "sums", "chain-B")
    assert mix.shared == ()
    envs = [problem.env for count in (4, 1, 5) for problem in mix.take(count)]
    assert envs == (["chain-A", "sums", "chain-B"] * 4)[:10]


def test_a_source_added_at_the_end_changes_no_other(tmp_path: Path) -> None:
    sources = ["B", "A", sums(tmp_path), sums(tmp_path, "more.jsonl")]
    whole = open_tasks(sources, seed=2).take(80)
    for count in (1, 2, 3):
        part = open_tasks(sources[:count], seed=2).take(20 * count)
        for i in range(count):
            assert part[i::count] == whole[i :: len(sources)]


def test_two_built_in_tasks_do_not_echo_each_other() -> None:
    problems = open_tasks(["A", "base", "B"], seed=0).take(300)
    firsts = [[problem.text[:3] for problem in problems[i::3]] for i in range(3)]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert sum(a == b for a, b in zip(firsts[i], firsts[j], strict=True)) < 20


@given(before=st.integers(0, 50), after=st.integers(1, 50))
@settings(deadline=None)
def test_state_survives_json_and_continues_every_source(before: int, after: int) -> None:
    mix = open_tasks(["A", "B", "base"], seed=9)
    mix.take(before)
    state = json.loads(json.dumps(mix.state()))
    expected = mix.take(after)
    other = open_tasks(["A", "B", "base"], seed=0)
    other.restore(state)
    assert other.take(after) == expected


def test_a_checkpoint_of_other_tasks_is_refused(tmp_path: Path) -> None:
    mixes = [["A"], [sums(tmp_path)], ["A", "B"], ["A", sums(tmp_path)], ["A", "B", "base"]]
    for written in mixes:
        for read in mixes:
            if len(written) != len(read) or [s in TASKS for s in written] != [s in TASKS for s in read]:
                with pytest.raises(CheckpointError):
                    open_tasks(read, seed=0).restore(open_tasks(written, seed=0).state())


def test_held_out_problems_are_never_trained_on(tmp_path: Path) -> None:
    sources = ["A", "B", sums(tmp_path, count=200)]
    train = {problem.text for problem in open_tasks(sources, seed=0).take(900)}
    held = {problem.text for problem in open_tasks(sources, seed=7, held_out=True).take(300)}
    assert not train & held
    assert all(map(is_held_out, held))


def test_a_small_file_says_so(tmp_path: Path) -> None:
    mix = open_tasks(["A", sums(tmp_path, count=3)], seed=0, held_out=True)
    assert mix.shared == ("sums",)


def test_a_file_may_hold_several_environments(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"{i}", "answer": i, "env": f"e{i % 3}"}) for i in range(60)))
    mix = open_tasks([str(path)], seed=0)
    assert sorted(mix.envs) == ["e0", "e1", "e2"]
    assert set(Counter(problem.env for problem in mix.take(60))) == set(mix.envs)


def test_what_is_refused(tmp_path: Path) -> None:
    path = sums(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(json.dumps({"prompt": f"{i}", "answer": i, "env": f"e{i}"}) for i in range(90)))
    for sources, says in (
        ([], "task.sources is empty"),
        (["A", "A"], "given twice"),
        (["Base"], "nearest are base"),
        (["gsm8k"], "nearest are base, A, B"),
        (["none.jsonl"], "none.jsonl: cannot be read"),
        ([path, sums(other)], "both have the env 'sums'"),
        (["A", sums(other, "x.jsonl", env="chain-A")], "both have the env 'chain-A'"),
        ([str(many)], "more than the 64 slices"),
    ):
        with pytest.raises(ConfigError) as caught:
            open_tasks(sources, seed=0)
        assert says in str(caught.value)


def tiny(text: str) -> list[int]:
    try:
        ids: list[int] = build_tokenizer().encode(text, add_special_tokens=False)
    except Exception:
        raise PolicyError(f"the tokenizer of tiny cannot write {text!r}") from None
    return ids


def without_eight(text: str) -> list[int]:
    if "8" in text:
        raise PolicyError("no eight")
    return tiny(text)


def test_prompts_are_checked_before_the_run(tmp_path: Path) -> None:
    open_tasks(["A", "B", "base", sums(tmp_path)], seed=0).check(tiny, room=12)
    open_tasks(["B", "base"], seed=0).check(tiny, room=10)
    with pytest.raises(ConfigError, match=r"^task chain-B: the prompt has 10 tokens, and 9 are left"):
        open_tasks(["B"], seed=0).check(tiny, room=9)
    with pytest.raises(ConfigError, match=r"^task chain-A: no eight"):
        open_tasks(["A"], seed=0).check(without_eight, room=12)
    with pytest.raises(ConfigError, match=r"^task chain-A: the prompt has 12 tokens, and 11 are left"):
        open_tasks(["A"], seed=0).check(tiny, room=11)
    path = tmp_path / "words.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": 2}\n\n{"prompt": "one", "answer": 1}\n')
    with pytest.raises(ConfigError, match=r"^words.jsonl:3: the tokenizer of tiny cannot write 'one'"):
        open_tasks([str(path)], seed=0).check(tiny, room=12)
    with pytest.raises(ConfigError, match=r"^words.jsonl:3: the prompt has 5 tokens"):
        open_tasks([str(path)], seed=0).check(lambda text: [0] * (5 if text == "one" else 2), room=4)
