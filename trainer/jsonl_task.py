"""Tasks from a file: `JsonlStream(read_jsonl(Path("gsm8k.jsonl")), seed=0).take(32)`.

One JSON object a line: `prompt` (or GSM8K's `question`), `answer` (text or number; where it holds `####`, what follows
the last one counts), optionally `env`; other keys are ignored, blank lines skipped. Any other line is an error with
file and line: a run must not start on half of its data.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from regimescope.trainer.answers.comparison import read_reference
from regimescope.trainer.answers.extraction import LONG_MARKER, MAX_SPAN
from regimescope.trainer.answers.judge_process import JudgeFailed, JudgeProcess
from regimescope.trainer.errors import CheckpointError, ConfigError
from regimescope.trainer.task import HELD_OUT_SHARE, Problem, is_held_out

MAX_ENV = 64
"Characters of an environment's name: it is shown on the page."
_BOM = b"\xef\xbb\xbf"
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def read_jsonl(path: Path) -> tuple[Problem, ...]:
    """All problems of a file, in its order. Raises ConfigError with file and line.

    Every reference answer is read once: plain numbers and words here, the rest by math-verify in its own process, some
    milliseconds each.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): check the path of the task") from None


@lru_cache(maxsize=8)
def _read(path: Path, modified: int, size: int) -> tuple[Problem, ...]:
    """`modified` and `size` make a changed file another one; training and evaluation read it once."""
    problems = []
    judge = JudgeProcess(limit_s=10.0)
    try:
        for number, line in enumerate(path.read_bytes().removeprefix(_BOM).split(b"\n"), 1):
            if line.strip():
                where = f"{path}:{number}"
                problem = _problem(
                    line, where, Problem(text="", answer="", env=path.stem, source=f"{path.name}:{number}")
                )
                _check_reference(str(problem.answer), where, judge)
                problems.append(problem)
    finally:
        judge.close()
    if not problems:
        raise ConfigError(f'{path}: no problem in it: write one {{"prompt": ..., "answer": ...}} a line')
    return tuple(problems)


def _problem(line: bytes, where: str, blank: Problem) -> Problem:
    try:
        entry = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: byte {error.start + 1} is not UTF-8: save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:  # no JSON, NaN, an integer of thousands of digits, nested too deep
        raise ConfigError(f"{where}: not JSON ({error}): write one object on one line") from None
    if not isinstance(entry, dict):
        raise ConfigError(f'{where}: {_kind(entry)}, not an object: write {{"prompt": ..., "answer": ...}}')
    prompt = _text(entry, "prompt" if "prompt" in entry else "question", where)
    env = _text(entry, "env", where) if "env" in entry else blank.env
    if len(env) > MAX_ENV or not env.isprintable():
        raise ConfigError(f"{where}: env {env[:MAX_ENV]!r}: use at most {MAX_ENV} printable characters")
    return Problem(text=prompt, answer=_reference(entry, where), env=env, form="math", source=blank.source)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON value")


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    if key not in entry:
        missing = "prompt (or question)" if key == "question" else key
        raise ConfigError(f"{where}: no {missing} among its keys ({', '.join(map(repr, entry)) or 'none'}): add it")
    value = entry[key]
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {key} is {_kind(value)}: write it as text")
    if not value.strip():
        raise ConfigError(f"{where}: {key} is empty: write it, or take the line out")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: {key} holds half of a surrogate pair: no tokenizer can write it") from None
    return value


def _reference(entry: dict[str, Any], where: str) -> str:
    value = entry.get("answer")
    if type(value) is int or (isinstance(value, float) and math.isfinite(value)):
        entry = {"answer": format(Decimal(repr(value)), "f")}
    elif "answer" in entry and not isinstance(value, str):
        raise ConfigError(f"{where}: answer is {_kind(value)}: write it as text or as a finite number")
    text = _text(entry, "answer", where)
    if LONG_MARKER in text:
        text = _THOUSANDS.sub("", text.rpartition(LONG_MARKER)[2])
    text = text.strip()
    if not text:
        raise ConfigError(f"{where}: answer has nothing after its last {LONG_MARKER}: write the result there")
    if len(text) > MAX_SPAN:
        raise ConfigError(
            f"{where}: answer has {len(text)} characters, more than the {MAX_SPAN} that are judged: shorten"
        )
    return text


def _check_reference(answer: str, where: str, judge: JudgeProcess) -> None:
    """Raises ConfigError where no response could ever be right."""
    reading, problem = read_reference(answer), ""
    if reading is None:
        problem = "cannot be read: mind unbalanced braces and control characters"
    elif reading.kind == "expression":
        try:
            if not judge.readable(reading.text):
                problem = "is nothing that math-verify can read: write a number, LaTeX, or words in \\text{}"
        except TimeoutError as error:
            problem = f"cannot be evaluated, {error}: simplify it"
        except JudgeFailed as error:
            problem = f"makes math-verify fail ({error.kind}): write it in another way, or check that it is installed"
    if problem:
        raise ConfigError(f"{where}: answer {answer[:80]!r} {problem}")


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


class JsonlStream:
    """A file's problems without end: shuffled by the seed, and anew in every epoch.

    Training and evaluation never share a problem, by the hash of its text (`is_held_out`). Of a file with fewer than 8
    problems, or where one of the two parts would be empty, both get all problems, and `shared` is true: its evaluation
    is no held-out one.
    """

    def __init__(self, problems: Sequence[Problem], *, seed: int, held_out: bool = False) -> None:
        part = [problem for problem in problems if is_held_out(problem.text) == held_out]
        self.shared = len(problems) < HELD_OUT_SHARE or len(part) in (0, len(problems))
        self.problems = tuple(problems if self.shared else part)
        self.held_out = held_out
        self._seed = seed
        self._epoch, self._position = 0, 0
        self._order = self._shuffled()

    def take(self, count: int) -> list[Problem]:
        """The next `count` problems; a new epoch begins where the file ends."""
        return [self._next() for _ in range(count)]

    def state(self) -> tuple[int, int, str]:
        """(epoch, problems of it already asked, digest of the problems)."""
        return self._epoch, self._position, self._digest()

    def restore(self, state: Sequence[Any]) -> None:
        """Go on where `state` was taken. Raises CheckpointError where the file has other problems now."""
        epoch, position, digest = state
        if digest != self._digest():
            name = self.problems[0].source.partition(":")[0]
            raise CheckpointError(f"{name} has other problems than when the checkpoint was written: put the file back")
        self._epoch, self._position = int(epoch), int(position)
        self._order = self._shuffled()

    def _next(self) -> Problem:
        if self._position == len(self._order):
            self._epoch, self._position = self._epoch + 1, 0
            self._order = self._shuffled()
        self._position += 1
        return self.problems[self._order[self._position - 1]]

    def _shuffled(self) -> list[int]:
        order = list(range(len(self.problems)))
        random.Random(f"{'held-out' if self.held_out else 'train'} {self._seed} {self._epoch}").shuffle(order)
        return order

    def _digest(self) -> str:
        digest = blake2b(digest_size=8)
        for problem in self.problems:
            digest.update(f"{problem.text}\0{problem.answer}\0{problem.env}\0".encode())
        return digest.hexdigest()
