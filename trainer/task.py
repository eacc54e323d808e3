"""Worked chain arithmetic: problems without end, their answers, and the noisy solutions of the warm-start corpus.

`3+5-2=` asks for `3+5=8;8-2=6;#6`. Lines that start with C restate a step, lines with W restate it with another
result: the tiny analogue of "check" and "wait". Harder short styles do two operations in a step or give the bare
answer. Training and evaluation never share a problem: each text belongs to one of the two by its hash.
Used as `ProblemStream(TASKS["A"], seed=0).take(32)`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

HELD_OUT_SHARE = 8
"One problem in this many is kept for evaluation."

MARKER = "#"
"Stands before the final answer."

AnswerForm = Literal["number", "math"]
"`number`: one plain number after the last `#`. `math`: boxed, or after `####`; any notation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem: `Problem(text="3+5-2=", answer=6)`."""

    text: str
    "The prompt, from the first operand to the equals sign."
    answer: int | str
    "The right result: a whole number for chain arithmetic, the reference as written for JSONL problems."
    env: str = "chain"
    "Name of the environment (slice kind `env`)."
    form: AnswerForm = "number"
    "How an answer to it is read and judged."
    source: str = ""
    "Where it comes from, such as `gsm8k.jsonl:17`; empty for generated problems."


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What is asked, and how noisy and varied the demonstrated solutions are."""

    operands: tuple[int, int] = (3, 5)
    "Fewest and most operands of 1 to 9."
    top: int = 30
    "The running total stays in 0..top."
    noise: float = 0.06
    "Chance that a demonstrated partial result is wrong; double for two operations in a step, triple for a bare answer."
    checks: float = 0.25
    "Chance that a right result is followed by a C or W line; 0.5 after a wrong one."
    bare: float = 0.2
    "Share of solutions that are a bare answer."
    pairs: float = 0.2
    "Share of solutions that do two operations in a step."
    max_chars: int = 60
    "Longest demonstrated solution; longer ones are drawn again."


TASKS = {
    "base": TaskSpec(),
    "A": TaskSpec(operands=(4, 6), noise=0.09, checks=0.3, bare=0.15, pairs=0.2, max_chars=80),
    "B": TaskSpec(operands=(3, 5), noise=0.12, checks=0.45, bare=0.04, pairs=0.15, max_chars=80),
}
"The task of each warm start; `base` is the common first stage."


def is_held_out(text: str) -> bool:
    """Whether the problem of this text belongs to the evaluation, by its hash alone."""
    return blake2b(text.encode(), digest_size=4).digest()[0] % HELD_OUT_SHARE == 0


class ProblemStream:
    """Problems without end; the same task, seed and part give the same ones, whatever `env` they are labelled with.

    `state` and `restore` carry the place over a checkpoint.
    """

    def __init__(self, spec: TaskSpec, *, seed: int, held_out: bool = False, env: str = "chain") -> None:
        self.spec = spec
        self.held_out = held_out
        self.env = env
        self._rng = random.Random(f"{'held-out' if held_out else 'train'} {seed}")

    def take(self, count: int) -> list[Problem]:
        """The next `count` problems."""
        return [self._next() for _ in range(count)]

    def state(self) -> tuple[Any, ...]:
        """The place in the stream, as `random.Random.getstate` gives it (plain ints: fits a checkpoint)."""
        return self._rng.getstate()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go on where `state` was taken; lists in place of tuples (from JSON) are accepted."""
        version, internal, gauss = state
        self._rng.setstate((version, tuple(internal), gauss))

    def _next(self) -> Problem:
        while True:
            problem = draw_problem(self.spec, self._rng, env=self.env)
            if is_held_out(problem.text) == self.held_out:
                return problem


def draw_problem(spec: TaskSpec, rng: random.Random, *, env: str = "chain") -> Problem:
    """One problem of either part, its running total kept in 0..top."""
    total = rng.randint(1, 9)
    text = str(total)
    for _ in range(rng.randint(*spec.operands) - 1):
        operand, sign = rng.randint(1, 9), rng.choice("+-")
        if sign == "-" and total < operand:
            sign = "+"
        elif sign == "+" and total + operand > spec.top:
            sign = "-"
        total = _apply(total, sign, operand)
        text += f"{sign}{operand}"
    return Problem(text=f"{text}=", answer=total, env=env)


def draw_solution(problem: Problem, spec: TaskSpec, rng: random.Random) -> str:
    """One demonstrated solution, often wrong on purpose, without end token, of at most `spec.max_chars` characters."""
    while True:
        solution = _draw_solution(problem, spec, rng)
        if len(solution) <= spec.max_chars:
            return solution


def _draw_solution(problem: Problem, spec: TaskSpec, rng: random.Random) -> str:
    first, *rest = re.findall(r"[+-]?\d", problem.text)
    style = rng.random()
    if style < spec.bare:
        return f"{MARKER}{_noisy(int(problem.answer), 3 * spec.noise, rng)}"
    width = 2 if style < spec.bare + spec.pairs else 1
    lines: list[str] = []
    total = int(first)
    for start in range(0, len(rest), width):
        operations = rest[start : start + width]
        total = _work_step(total, operations, spec, rng, lines)
    return "".join(lines) + f"{MARKER}{total}"


def _work_step(total: int, operations: list[str], spec: TaskSpec, rng: random.Random, lines: list[str]) -> int:
    """Append one step and its C and W lines to `lines`; returns the result that the solution goes on with."""
    expression = f"{total}{''.join(operations)}"
    right = total
    for operation in operations:
        right = _apply(right, operation[0], int(operation[1:]))
    result = _noisy(right, len(operations) * spec.noise, rng)
    lines.append(f"{expression}={result};")
    while rng.random() < (spec.checks if result == right else 0.5):
        again = _noisy(right, spec.noise, rng)
        lines.append(f"{'C' if again == result else 'W'}{expression}={again};")
        result = again
    return result


def _apply(total: int, sign: str, operand: int) -> int:
    return total + operand if sign == "+" else total - operand


def _noisy(value: int, chance: float, rng: random.Random) -> int:
    if rng.random() >= chance:
        return value
    return max(0, value + rng.choice((-10, -2, -1, 1, 2, 10)))
