"""Generated runs of `benchmarks/detectors/traces.py`: the onset is where the failure was put.

generated(size)    healthy families under every noise, and each failure at early and late onsets
lengths()          the same collapse late in short and in long runs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.detectors import traces
from benchmarks.labels import halved
from benchmarks.scorecard.cases import FAILURES, Case, Row, lab_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is generated."""

    steps: int
    "Of a healthy run."
    phis: tuple[float, ...]
    "Correlations of the noise."
    tails: tuple[traces.Tails, ...]
    "Its distributions."
    seeds: int
    "Of each collapse at each onset; half as many of the other failures."


FULL = Size(steps=3000, phis=(0.0, 0.6, 0.8), tails=traces.TAILS, seeds=4)
QUICK = Size(steps=1000, phis=(0.6,), tails=("normal",), seeds=1)
ONSETS = (3, 8, 20, 40, 200, 260, 320)
"Of generated failures."
COLLAPSES = FAILURES[:3]
AFTER = {"length": 80, "repetition": 80, "decay": 220, "entropy": 180, "runaway": 80, "zero": 80}
"Steps that follow the onset of a generated failure."
LATE = (250, 1000, 2500)
"Onsets of the same collapse in longer and longer runs."
LATE_AFTER = 320
LATE_SEEDS = 2


def generated(size: Size) -> list[Case]:
    """All of them."""
    return [*_healthy(size), *_failed(size)]


def lengths(late: tuple[int, ...] = LATE, seeds: int = LATE_SEEDS) -> list[Case]:
    """Each collapse at each late onset: the same rows around it, more and more healthy ones before them."""
    return [_delayed(kind, onset, 700_000 + seed) for kind in COLLAPSES for onset in late for seed in range(seeds)]


def _delayed(kind: str, onset: int, seed: int) -> Case:
    before = traces.healthy("plain", onset - LATE[0], seed + 1000)
    return _failing(kind, onset, [*before, *traces.incident(kind, LATE[0], LATE[0] + LATE_AFTER, seed)], seed)


def _healthy(size: Size) -> Iterator[Case]:
    seed = 500_000  # others than those of the gates
    for phi in size.phis:
        for tails in size.tails:
            for family in traces.FAMILIES:
                seed += 1
                rows = traces.healthy(family, size.steps, seed, traces.Noise(phi=phi, tails=tails))
                yield Case(
                    name=f"{family}, phi {phi}, {tails}", objective="dispo", rows=_steps(rows), state="healthy",
                    onsets={}, halved=None,
                )  # fmt: skip


def _failed(size: Size) -> Iterator[Case]:
    for kind, after in AFTER.items():
        for onset in ONSETS:
            for seed in range(size.seeds if kind in COLLAPSES else (size.seeds + 1) // 2):
                yield _incident(kind, onset, after, 900_000 + 1000 * onset + seed)


def _incident(kind: str, onset: int, after: int, seed: int) -> Case:
    return _failing(kind, onset, traces.incident(kind, onset, onset + after, seed), seed)


def _failing(kind: str, onset: int, run: traces.Run, seed: int) -> Case:
    rows = _steps(run)
    return Case(
        name=f"{kind} from {onset}, seed {seed}", objective="dispo", rows=rows, state="failed",
        onsets={kind: onset}, halved=halved(rows),
    )  # fmt: skip


def _steps(rows: traces.Run) -> list[Row]:
    return [lab_row({"step": float(step), **row}) for step, row in enumerate(rows)]
