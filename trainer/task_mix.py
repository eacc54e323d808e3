"""Several tasks in one run: `open_tasks(["A", "gsm8k.jsonl"], seed=0).take(32)` asks them in turn, prompt by prompt.

Every problem carries its environment, the value of its slice: `chain-A` for a built-in task, the file's own for JSONL.
Each source has a stream of its own, so one that is added at the end changes nothing in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from hashlib import blake2b
from pathlib import Path
from typing import Any

from regimescope.monitor.errors import RegimescopeError
from regimescope.trainer.errors import CheckpointError, ConfigError
from regimescope.trainer.jsonl_task import JsonlStream, read_jsonl
from regimescope.trainer.task import TASKS, Problem, ProblemStream, TaskSpec

MAX_ENVS = 64
"Slices of a run end there (architecture.md)."
SUFFIX = ".jsonl"
_EVERY_CHARACTER = ("1+2-3=", "4+5-6=", "7+8-9=")


class TaskMix:
    """The sources of a run as one stream; `take`, `state` and `restore` as those of a single one."""

    def __init__(self, streams: Sequence[ProblemStream | JsonlStream]) -> None:
        self._streams = tuple(streams)
        self._turn = 0
        self.envs = tuple(dict.fromkeys(env for stream in streams for env in _envs(stream)))
        "Environments, in the order of the sources."
        self.shared = tuple(env for stream in streams if getattr(stream, "shared", False) for env in _envs(stream))
        "Those too small for a held-out part: trained and evaluated on the same problems."

    def take(self, count: int) -> list[Problem]:
        """The next `count` problems, one of each source in turn; the next call goes on with the next source."""
        problems = []
        for _ in range(count):
            problems += self._streams[self._turn].take(1)
            self._turn = (self._turn + 1) % len(self._streams)
        return problems

    def state(self) -> tuple[Any, ...]:
        """Plain numbers and texts for a checkpoint. That of a single source is its stream's own."""
        if len(self._streams) == 1:
            return self._streams[0].state()
        return self._turn, *(stream.state() for stream in self._streams)

    def restore(self, state: Sequence[Any]) -> None:
        """Go on where `state` was taken. Raises CheckpointError where the sources are others now."""
        turn, states = (0, [state]) if len(self._streams) == 1 else (state[0], state[1:])
        if len(states) != len(self._streams):
            raise CheckpointError(
                f"the checkpoint holds {len(states)} tasks, not {len(self._streams)}: give the same task.sources"
            )
        for stream, own in zip(self._streams, states, strict=True):
            try:
                stream.restore(own)
            except (TypeError, ValueError):
                raise CheckpointError("the checkpoint's tasks are others: give the same task.sources") from None
        self._turn = int(turn)

    def check(self, encode: Callable[[str], list[int]], room: int) -> None:
        """Whether every prompt can be written and has at most `room` tokens, those left beside the longest response.

        Raises ConfigError with file and line, or the task. `encode` may raise any RegimescopeError.
        """
        for stream in self._streams:
            for problem in _probes(stream):
                where = problem.source or f"task {problem.env}"
                try:
                    tokens = len(encode(problem.text))
                except RegimescopeError as error:
                    raise ConfigError(f"{where}: {error}: choose a model that can, or other tasks") from None
                if tokens > room:
                    raise ConfigError(
                        f"{where}: the prompt has {tokens} tokens, and {room} are left beside the longest response: "
                        "shorten it, or lower rollout.max_tokens"
                    )


def open_tasks(sources: Sequence[str], *, seed: int, held_out: bool = False) -> TaskMix:
    """The tasks by name (A, B, base) or path of a `.jsonl` file. Raises ConfigError.

    A single source gives what its stream gives with this seed, and so does the first of several; each later one has a
    seed made of this one and its name.
    """
    if not sources:
        raise ConfigError(f"task.sources is empty: name a task ({', '.join(TASKS)}) or a {SUFFIX} file")
    streams: list[ProblemStream | JsonlStream] = []
    asked_by: dict[str, str] = {}
    for place, source in enumerate(sources):
        if source in sources[:place]:
            raise ConfigError(f"task {source!r} is given twice: once is enough")
        stream = _open(source, seed=_seed(seed, source) if place else seed, held_out=held_out)
        for env in _envs(stream):
            if env in asked_by:
                raise ConfigError(
                    f"tasks {asked_by[env]!r} and {source!r} both have the env {env!r}: give one another env"
                )
            asked_by[env] = source
        streams.append(stream)
    if len(asked_by) > MAX_ENVS:
        raise ConfigError(
            f"{len(asked_by)} env values in the tasks, more than the {MAX_ENVS} slices of a run: merge some"
        )
    return TaskMix(streams)


def _open(source: str, *, seed: int, held_out: bool) -> ProblemStream | JsonlStream:
    if source.endswith(SUFFIX):
        return JsonlStream(read_jsonl(Path(source)), seed=seed, held_out=held_out)
    if source not in TASKS:
        files = [path.name for path in sorted(Path().glob(f"*{SUFFIX}"))]
        near = get_close_matches(source, [*TASKS, *files], 3, cutoff=0.5) or list(TASKS)
        raise ConfigError(
            f"task {source!r}: unknown; nearest are {', '.join(near)}, or give the path of a {SUFFIX} file"
        )
    return ProblemStream(TASKS[source], seed=seed, held_out=held_out, env=f"chain-{source}")


def _seed(seed: int, source: str) -> int:
    """A file keeps its seed when its folder moves."""
    return int.from_bytes(blake2b(f"{seed} {Path(source).name}".encode(), digest_size=6).digest())


def _envs(stream: ProblemStream | JsonlStream) -> list[str]:
    if isinstance(stream, ProblemStream):
        return [stream.env]
    return list(dict.fromkeys(problem.env for problem in stream.problems))


def _probes(stream: ProblemStream | JsonlStream) -> Sequence[Problem]:
    """All problems of a file; of chain arithmetic short ones with every character, and a longest one."""
    if isinstance(stream, JsonlStream):
        return stream.problems
    return [Problem(text=text, answer=0, env=stream.env) for text in (*_EVERY_CHARACTER, _longest(stream.spec))]


def _longest(spec: TaskSpec) -> str:
    return "+".join("9" * spec.operands[1]) + "="
