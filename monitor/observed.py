"""What an applied change of bounds was predicted to do, beside what the buckets say of the steps after it.

    found = outcome(con, run, commands, command)      # None: the command moved no bound
    print(found.steps, "of", found.of, found.note)

The prediction replays the stored histograms of the steps before the change (`what_if.py`); the observation adds up the
buckets of up to AFTER_STEPS steps under the new revision. Beside them how a few metrics moved. Before and after differ
in more than the bounds: no proof of a cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.query import BucketRow, CommandRow, Connection, RunRow, bucket_sums, buckets, envelopes
from regimescope.monitor.what_if import LAST_STEPS, Prediction, predict

AFTER_STEPS = 30
"Steps after a change that are looked at."
METRICS = ("accuracy", "response_length_mean", "rep4_mean", "entropy_mean")
"What is compared before and after."
MOVES = ("set_bounds", "rollback")
"Kinds of commands that can move bounds."

_REGIME_OF = {"pos.w_max": "R1", "pos.w_min": "R2", "neg.w_max": "R3", "neg.w_min": "R4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeOutcome:
    """A regime whose bound moved; shares 0..1, None = not known."""

    regime: str
    clipped_before: float | None
    "Share of its tokens held by a bound over the steps before, as the prediction replays them."
    clipped_predicted: float | None
    clipped_error: float
    "+- of the prediction."
    clipped_observed: float | None
    mass_before: float | None
    "Its share of the whole gradient mass."
    mass_predicted: float | None
    mass_observed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOutcome:
    """Mean over the steps before and after."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one applied command."""

    first: int
    "First step under it."
    steps: int
    "Steps that were seen under it."
    of: int
    "Steps that are looked at."
    before: int
    "Steps that the prediction is from; 0 = none."
    note: str
    "Why there will be no further steps, or why nothing was predicted; else empty."
    regimes: tuple[RegimeOutcome, ...]
    metrics: tuple[MetricOutcome, ...]


def outcome(con: Connection, run: RunRow, commands: Sequence[CommandRow], command: CommandRow) -> Outcome | None:
    """None where the command moved no bound or was not applied. `commands`: all of the run."""
    start, then, now = command.applied_step, command.applied, bounds_before(command)
    if command.kind not in MOVES or command.status != "applied" or not command.changes or start is None or then is None:
        return None
    next_one = _next(commands, command)
    end = start + AFTER_STEPS - 1 if next_one is None else min(start + AFTER_STEPS, next_one) - 1
    rows = [r for r in buckets(con, run.run_key, steps=(start, end)) if r.revision == command.revision]
    steps = sorted({row.step for row in rows})
    prediction = Prediction(obstacle="The bounds before it are not known.")
    if now is not None:
        prediction = predict(con, run, now=now, then=then, until=start - 1)
    before = (start - LAST_STEPS, start - 1) if prediction.obstacle else (prediction.first, prediction.last)
    masses = _masses(con, run.run_key, steps)
    regimes = [_regime(name, prediction, rows, masses) for name in _moved(command)]
    return Outcome(
        first=start, steps=len(steps), of=AFTER_STEPS, before=prediction.steps,
        note=_note(prediction, len(steps), start, next_one), regimes=tuple(regimes),
        metrics=_metrics(con, run.run_key, before, (steps[0], steps[-1]) if steps else None),
    )  # fmt: skip


def bounds_before(command: CommandRow) -> Bounds | None:
    """What was in force when it was applied; None where that is not known."""
    old = {change.name: change.old for change in command.changes if change.old is not None}
    if command.applied is None or len(old) < len(command.changes):
        return None
    return command.applied.with_values(old)


def _next(commands: Iterable[CommandRow], command: CommandRow) -> int | None:
    """First step under the next revision, which may lie before this one's own (a rollback)."""
    later = [
        (c.revision, c.applied_step)
        for c in commands
        if c.kind in MOVES and c.status == "applied" and c.revision is not None and c.applied_step is not None
        and c.revision > (command.revision or 0)
    ]  # fmt: skip
    return min(later)[1] if later else None


def _note(prediction: Prediction, steps: int, start: int, next_one: int | None) -> str:
    if next_one is not None and next_one <= start:
        return "Its steps were left by a later rollback."
    parts = [f"Nothing was predicted: {prediction.obstacle}"] if prediction.obstacle else []
    if next_one is not None and steps < AFTER_STEPS:
        parts.append(f"The bounds moved again at step {next_one}.")
    return " ".join(parts)


def _moved(command: CommandRow) -> list[str]:
    return sorted({_REGIME_OF[change.name] for change in command.changes})


def _regime(name: str, p: Prediction, rows: Sequence[BucketRow], masses: dict[str, float]) -> RegimeOutcome:
    mine = [row for row in rows if row.bucket == name]
    tokens = sum(row.tokens for row in mine)
    held = sum(row.tokens * ((row.clip_high_frac or 0.0) + (row.clip_low_frac or 0.0)) for row in mine)
    effect = next((effect for effect in p.effects if effect.regime == name), None)
    return RegimeOutcome(
        regime=name,
        clipped_before=None if effect is None else effect.clipped_now,
        clipped_predicted=None if effect is None else effect.clipped_then,
        clipped_error=0.0 if effect is None else effect.clipped_error,
        clipped_observed=held / tokens if tokens else None,
        mass_before=None if effect is None else effect.grad_mass_now,
        mass_predicted=None if effect is None else effect.grad_mass_then,
        mass_observed=masses.get(name),
    )


def _masses(con: Connection, run_key: int, steps: Sequence[int]) -> dict[str, float]:
    """Share of each bucket in the gradient mass of these steps; empty where there is none."""
    if not steps:
        return {}
    used, sums = set(steps), dict[str, float]()
    for row in bucket_sums(con, run_key, steps=(steps[0], steps[-1])):
        if row.step in used:
            sums[row.bucket] = sums.get(row.bucket, 0.0) + row.abs_adv_weight_sum
    whole = sum(sums.values())
    return {name: part / whole for name, part in sums.items()} if whole > 0 and math.isfinite(whole) else {}


def _metrics(
    con: Connection, run_key: int, before: tuple[int, int], after: tuple[int, int] | None
) -> tuple[MetricOutcome, ...]:
    """Those that were logged in both or one of the stretches."""
    one = _means(con, run_key, before) if before[1] >= 0 else {}
    two = {} if after is None else _means(con, run_key, after)
    return tuple(
        MetricOutcome(name=name, before=one.get(name), after=two.get(name))
        for name in METRICS
        if name in one or name in two
    )


def _means(con: Connection, run_key: int, steps: tuple[int, int]) -> dict[str, float]:
    found = envelopes(con, run_key, 0, METRICS, max(0, steps[0]), steps[1], 10 * AFTER_STEPS)
    values = {name: [v for v in series.values if v is not None] for name, series in found.items()}
    return {name: sum(some) / len(some) for name, some in values.items() if some}
