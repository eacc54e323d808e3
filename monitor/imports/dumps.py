"""Dumps of rollouts: verl's (`rollout_data_dir`, JSON lines, a file per step) and TRL's (`completions_00010.parquet`).

`steps_of(path, notes)` gives the responses of each step; `numbers_of_step` is what is measured of
them. Repetition and length are over words, or over characters where a text is not written in words: a dump has no
tokens. What a dump does not tell (truncation, accuracy) is left out, never inferred.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports.dump_parquet import MAGIC as PARQUET
from regimescope.monitor.imports.dump_parquet import is_completions, parquet_records
from regimescope.monitor.imports.numbers import number_of
from regimescope.monitor.imports.rows import Notes
from regimescope.monitor.imports.text import head_of, text_lines
from regimescope.monitor.text_units import repeated_share, units_of

VERL, TRL = "verl rollouts", "TRL completions"
REPEATS = 0.5
"A response with a larger share of repeated 4-grams counts as repetitive, as in docs/metrics.md."
_GENERATIONS = 16
"Steps back within which a generation that is trained on again is known."
_NO_NUMBER = frozenset({"step", "score", "reward", "advantage", "uid", "index", "gts"})
_MOST_LINE = 1 << 26

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response of a dump."""

    prompt: str
    text: str
    reward: float | None = None
    advantage: float | None = None
    truncated: bool | None = None
    "None = the dump does not tell."
    numbers: Mapping[str, float] = field(default_factory=dict)
    "Whatever else is a number."
    units: int = 0
    "Words, or characters."
    rep4: float = 0.0
    rep20: float = 0.0
    in_words: bool = True


def is_dump(path: Path) -> bool:
    """Whether the file, or a file of the folder, has responses with their texts. Raises OSError."""
    if path.is_dir():
        return any(is_dump(file) for file in _files(path)[:1])
    if not path.is_file():
        return False
    head = head_of(path)
    if head.startswith(PARQUET):
        return is_completions(path)
    return _first_record(path, head) is not None


def _first_record(path: Path, head: bytes) -> Record | None:
    """The first line where it is one of a dump; it may be longer than the head."""
    if not re.match(rb'\s*\{\s*"', head):
        return None
    with open(path, "rb") as file:
        line = file.readline(_MOST_LINE) if b"\n" not in head else head.partition(b"\n")[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fits = isinstance(record, dict) and isinstance(record.get("output"), str) and "input" in record
    return record if fits and ("score" in record or "step" in record) else None


def _files(folder: Path) -> list[Path]:
    """Files of a folder of dumps, by the number in their names."""
    found = [path for path in folder.iterdir() if re.fullmatch(r"(.*[_-])?\d+\.(jsonl|parquet)", path.name)]
    return sorted(found, key=lambda path: (number_in(path) or 0, path.name))


def number_in(path: Path) -> int | None:
    """The number at the end of a file's name, which is the step.

    >>> number_in(Path("completions_00010.parquet")), number_in(Path("rollouts.jsonl"))
    (10, None)
    """
    found = re.search(r"(\d+)$", path.stem)
    return int(found.group(1)) if found else None


def steps_of(path: Path, notes: Notes) -> Iterator[tuple[int, list[Response]]]:
    """Responses of each step, a step at a time. A generation that is the same as one before is left out: the trainer
    went over it more than once. Raises ImportFailed, OSError.
    """
    seen: deque[bytes] = deque(maxlen=_GENERATIONS)
    for file in _files(path) if path.is_dir() else [path]:
        for step, records in groupby(_records(file, notes), key=lambda item: item[0]):
            responses = [made for _, record in records if (made := _response(record, notes)) is not None]
            digest = _digest(responses)
            if not responses:
                continue
            if digest in seen:
                notes.leave_out("steps that train on an earlier generation again", f"step {step}")
                continue
            seen.append(digest)
            yield step, responses


def _records(path: Path, notes: Notes) -> Iterator[tuple[int, Record]]:
    is_parquet = head_of(path, len(PARQUET)) == PARQUET
    notes.format = TRL if is_parquet else VERL
    records = parquet_records(path, notes) if is_parquet else _lines(path, notes)
    named = number_in(path)
    for record in records:
        step = number_of(record.get("step"))
        at = named if step is None or not step.is_integer() or step < 0 else int(step)
        if at is None:
            raise ImportFailed(
                f"{path} tells no step: neither has a response a `step`, nor is the file named after it (12.jsonl)"
            )
        yield at, record


def _lines(path: Path, notes: Notes) -> Iterator[Record]:
    for number, line in enumerate(text_lines(path, notes), 1):
        try:
            record = json.loads(line) if line and line.strip() else None
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and isinstance(record.get("output"), str):
            yield record
        elif line and line.strip():
            notes.leave_out("lines that are no response", f"{path.name}, line {number}")


def _response(record: Record, notes: Notes) -> Response | None:
    text = record.get("output", record.get("completion"))
    if not isinstance(text, str):
        notes.leave_out("responses without a text")
        return None
    units = units_of(text)
    if isinstance(units, str) and units:
        notes.leave_out("texts are not written in words: measured over characters")
    return Response(
        prompt=str(record.get("input", record.get("prompt", ""))),
        text=text,
        reward=number_of(record.get("score", record.get("reward"))),
        advantage=number_of(record.get("advantage")),
        truncated=_truncated(record),
        numbers={
            key: number
            for key, value in record.items()
            if key not in _NO_NUMBER and not isinstance(value, str) and (number := number_of(value)) is not None
        },
        units=len(units),
        rep4=repeated_share(units, 4),
        rep20=repeated_share(units, 20),
        in_words=not isinstance(units, str),
    )


def _truncated(record: Record) -> bool | None:
    for key in ("truncated", "is_truncated"):
        if isinstance(value := record.get(key), bool):
            return value
    reason = record.get("finish_reason", record.get("stop_reason"))
    return reason == "length" if isinstance(reason, str) else None


def _digest(responses: Iterable[Response]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for response in responses:
        for text in (response.prompt, response.text):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def numbers_of_step(responses: list[Response]) -> dict[str, float]:
    """What is measured of the responses of a step, as keys of the table of aliases: `dump/rep4/mean`."""
    found = {
        "dump/responses": float(len(responses)),
        "dump/rep4/mean": _mean(r.rep4 for r in responses),
        "dump/rep20/mean": _mean(r.rep20 for r in responses),
        "dump/repetition_frac": _mean(r.rep4 > REPEATS for r in responses),
        "dump/empty_frac": _mean(not r.text for r in responses),
        "dump/characters/mean": _mean(len(r.text) for r in responses),
    }
    if all(r.in_words or not r.text for r in responses):
        found["dump/words/mean"] = _mean(r.units for r in responses)
    rewards = _known(r.reward for r in responses)
    if rewards:
        found["dump/score/mean"] = mean = _mean(rewards)
        found["dump/score/std"] = math.sqrt(_mean((value - mean) ** 2 for value in rewards))
    if advantages := _known(r.advantage for r in responses):
        found |= {
            "dump/advantage/mean": _mean(advantages),
            "dump/advantage/min": min(advantages),
            "dump/advantage/max": max(advantages),
        }
    ends = [r.truncated for r in responses if r.truncated is not None]
    if ends:
        found["dump/truncated_frac"] = _mean(ends)
    if (equal := _equal_groups(responses)) is not None:
        found["dump/zero_variance_frac"] = equal
    for key in dict.fromkeys(key for r in responses for key in r.numbers):
        found[f"dump/{key}/mean"] = _mean(r.numbers[key] for r in responses if key in r.numbers)
    return found


def _equal_groups(responses: list[Response]) -> float | None:
    """Share of prompts, among those with several responses, whose responses have one reward; None without any."""
    groups: dict[str, list[float]] = {}
    for r in responses:
        if r.reward is not None and not math.isnan(r.reward):
            groups.setdefault(r.prompt, []).append(r.reward)
    several = [values for values in groups.values() if len(values) > 1]
    return _mean(max(values) == min(values) for values in several) if several else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and not math.isnan(value)]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
