"""Onsets of failures in a finished run: the rules that detectors are measured against, committed before any of them was
tuned. `label(rows)` applies them all.

They look at the whole run, the future included, and are applied by code, never by eye. A detector sees none of this:
it is given one step after the other. Steps are those of the log; a metric that a step lacks is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

FIRST = 5
"Points at the start that a length or a repetition is compared with."
LENGTH_SHARE = 0.67
"A response length below this share of its start, for good, has collapsed."
REPETITION_LEVEL, REPETITION_FACTOR = 0.15, 1.5
"rep4_mean above both the level and so many times its start, for good, is a repetition collapse."
DECAY_WINDOW, DECAY_SHARE = 9, 0.1
"Accuracy, as a mean of so many points, has decayed when this share of its peak is lost for good."
HALF = 0.5
"Accuracy below this share of its best so far, for good, is gone."
LASTING = 3
"A condition that holds to the end of a run must have held for so many points."

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Onset of each failure, the step; None = the run does not have it."""

    length: int | None
    repetition: int | None
    decay: int | None
    gone: int | None
    "Accuracy below half of its best, for good."
    halved: int | None
    "The same for the first time, in a run where it is gone: what a warning has to come before."

    @property
    def healthy(self) -> bool:
        """Nothing failed."""
        return self.decay is None and self.gone is None


def label(rows: Sequence[Row]) -> Labels:
    """`rows`: metrics of each step by name, `step` among them, in order.

    Answers that get shorter, or formulaic, while accuracy stays are no failure: length and repetition count where
    accuracy is gone. Decay counts where it is not, or where it went without either.
    """
    lost = gone(rows)
    length = None if lost is None else length_onset(rows)
    repetition = None if lost is None else repetition_onset(rows)
    decay = decay_onset(rows) if length is None and repetition is None else None
    first = None if lost is None else halved(rows)
    return Labels(length=length, repetition=repetition, decay=decay, gone=lost, halved=first)


def length_onset(rows: Sequence[Row]) -> int | None:
    """First step from which the median of three lengths stays below LENGTH_SHARE of the median of the first FIRST."""
    steps, values = _points(rows, "response_length_mean")
    if len(values) < FIRST + LASTING:
        return None
    floor = LENGTH_SHARE * median(values[:FIRST])
    return _for_good(steps, [value < floor for value in _smooth(values, 3, median)])


def repetition_onset(rows: Sequence[Row]) -> int | None:
    """First step from which the median of three values of rep4_mean stays above REPETITION_LEVEL, and above
    REPETITION_FACTOR times the median of the first FIRST."""
    steps, values = _points(rows, "rep4_mean")
    if len(values) < FIRST + LASTING:
        return None
    ceiling = max(REPETITION_LEVEL, REPETITION_FACTOR * median(values[:FIRST]))
    return _for_good(steps, [value > ceiling for value in _smooth(values, 3, median)])


def decay_onset(rows: Sequence[Row]) -> int | None:
    """The step at which the mean of DECAY_WINDOW accuracies has its peak, when DECAY_SHARE of it is lost for good."""
    steps, values = _points(rows, "accuracy")
    if len(values) < DECAY_WINDOW + LASTING:
        return None
    means = _smooth(values, DECAY_WINDOW, fmean)
    peak = max(range(len(means)), key=means.__getitem__)
    lost = [mean <= (1 - DECAY_SHARE) * means[peak] for mean in means[peak:]]
    return steps[peak] if _for_good(steps[peak:], lost) is not None else None


def gone(rows: Sequence[Row]) -> int | None:
    """First step from which the mean of three accuracies stays below HALF of the best of the first value and all
    earlier means."""
    return _for_good(*_below_half(rows))


def halved(rows: Sequence[Row]) -> int | None:
    """First step at which it is below, whether it stays there or not."""
    steps, below = _below_half(rows)
    return next((step for step, low in zip(steps, below, strict=True) if low), None)


def _below_half(rows: Sequence[Row]) -> tuple[list[int], list[bool]]:
    steps, values = _points(rows, "accuracy")
    best, below = (values[0] if values else 0.0), []
    for mean in _trailing(values, 3):
        below.append(mean < HALF * best)
        best = max(best, mean)
    return steps, below


def _points(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric where it is there and finite."""
    found = [(int(row["step"]), row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]
    return [step for step, _ in found], [value for _, value in found]


def _smooth(values: Sequence[float], width: int, of: Callable[[Sequence[float]], float]) -> list[float]:
    """`of` each value and its neighbours, `width` in all; fewer at both ends."""
    half = width // 2
    return [of(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _trailing(values: Sequence[float], width: int) -> list[float]:
    """Mean of each value and those before it, `width` in all; fewer at the start."""
    return [fmean(values[max(0, i + 1 - width) : i + 1]) for i in range(len(values))]


def _for_good(steps: Sequence[int], holds: Sequence[bool]) -> int | None:
    """First step from which all hold to the end, LASTING of them at least."""
    first = len(holds)
    while first > 0 and holds[first - 1]:
        first -= 1
    return steps[first] if len(holds) - first >= LASTING else None
