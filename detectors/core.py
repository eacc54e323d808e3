"""The shift detector that the signatures share: transform, robust scale, slow reference, CUSUM evidence, effect.

`Shift.update(step, value)` per point; read `.evidence` (S), `.effect` (e) and `.onset` after it. O(1) memory: at most
40 buffered points. What each number does is in docs/detectors.md, "The shift detector"; the defaults are [core] of
rules.toml.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from regimescope.detectors.means import decay

Transform = Callable[[float], float]

RECOMPUTED_AT = frozenset((8, 10, 13, 16, 20, 25, 32, 40))
"Accepted points at which the scale is computed again; after the last it is fixed."
RESEAT_POINTS = 3
_TO_SD = 1.4826  # median absolute deviation to standard deviation of a normal


def log_value(value: float) -> float:
    """log, with a floor of 1e-4: lengths, entropy, KL, gradient norm."""
    return math.log(value if value > 1e-4 else 1e-4)


def logit(value: float) -> float:
    """log odds of a fraction, clipped to 0.001 .. 0.999."""
    p = 0.001 if value < 0.001 else 0.999 if value > 0.999 else value
    return math.log(p / (1 - p))


def identity(value: float) -> float:
    """The value itself: rewards."""
    return value


def median(values: Sequence[float]) -> float:
    """Of at least one value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def robust_scale(values: Sequence[float], floor: float, *, settled: bool) -> float:
    """Scale of the noise around a straight line, widened for autocorrelation; at least `floor` before the widening.

    The median pairwise slope (Theil-Sen) is taken out first, so that a drift is not mistaken for noise. Then the
    larger of MAD and MAD(differences)/sqrt(2), times sqrt((1+phi)/(1-phi)) with phi the lag-1 correlation in 0 .. 0.8,
    the factor by which the mean of an AR(1) series is noisier. Until settled, phi is at least 0.5 and the scale is (1
    + 6/n) wider.
    """
    n = len(values)
    slope = median([(values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n)])
    rest = [value - slope * i for i, value in enumerate(values)]
    middle = median(rest)
    rest = [value - middle for value in rest]
    steps = [b - a for a, b in pairwise(rest)]
    sd = max(floor, _TO_SD * _mad(rest), _TO_SD * _mad(steps) / math.sqrt(2))
    power = sum(value * value for value in rest)
    phi = sum(a * b for a, b in pairwise(rest)) / power if power > 0 else 0.0
    phi = min(0.8, max(0.0 if settled else 0.5, phi))
    return sd * math.sqrt((1 + phi) / (1 - phi)) * (1.0 if settled else 1 + 6 / n)


def _mad(values: Sequence[float]) -> float:
    middle = median(values)
    return median([abs(value - middle) for value in values])


class Shift:
    """Watches one metric for a lasting shift to one side; a two-sided CUSUM (Page 1954) is two of them.

    >>> from regimescope.detectors import load_rules
    >>> shift = Shift(log_value, -1, 0.05, load_rules().core)
    >>> for step in range(40):
    ...     shift.update(step, 400 if step < 30 else 100)
    >>> shift.onset, shift.evidence, round(shift.effect, 2)   # the last point before it, S at its cap 2h, nearly ln 4
    (29, 16.0, 1.34)
    """

    __slots__ = (
        "_before_left", "_buffer", "_burn_in", "_cap", "_clip", "_fast_rate", "_floor", "_half", "_k", "_min_points",
        "_plain", "_reseat", "_settled", "_slow_half_life", "_slow_rate", "_slow_start", "_steady", "_steps",
        "_transform", "_weight", "accepted", "before", "effect", "evidence", "fast", "onset", "onset_point", "scale",
        "seen", "sign", "slow", "value",
    )  # fmt: skip

    def __init__(
        self,
        transform: Transform,
        sign: int,
        floor: float,
        core: Mapping[str, float],
        *,
        fast: float | None = None,
        slow: float | None = None,
    ) -> None:
        """`sign` +1 watches a rise, -1 a fall; `fast`, `slow`: half-lives in points, where they differ from the
        core's."""
        self.sign = sign
        self._transform, self._floor = transform, floor
        self._k, self._clip, self._half, self._cap = core["k"], core["clip"], core["h"] / 2, 2 * core["h"]
        self._fast_rate = decay(core["fast"] if fast is None else fast)
        self._slow_half_life = core["slow"] if slow is None else slow
        self._slow_rate = decay(self._slow_half_life)
        self._slow_start = core["slow_start"]
        self._settled, self._min_points, self._burn_in = (int(core[k]) for k in ("settled", "min_points", "burn_in"))
        self.seen = 0
        self._start()

    def _start(self) -> None:
        self.accepted = 0  # points of the metric that entered, from the third on
        self.scale: float | None = None  # None: still warming up
        self.slow = self.fast = self.value = 0.0
        self.evidence = self.effect = 0.0
        self.onset = self.onset_point = 0  # step and accepted-count of the last point with S = 0
        self._buffer: list[float] = []
        self._steps: list[int] = []
        self._reseat: list[float] | None = None
        self.before: float | None = None  # reference before the last reseat
        self._before_left = 0
        self._weight: float | None = None
        self._steady = False  # the scale is fixed and no reference is being looked for
        self._plain = False  # steady, with one reference at its full half-life: nearly all points of a long run

    @property
    def points_since_onset(self) -> int:
        """Accepted points since the last one with S = 0, at least 1."""
        return max(1, self.accepted - self.onset_point)

    def reseat(self) -> None:
        """After a resume or a change of bounds: keep the scale, find the reference again from the next three points.

        The old reference is kept as `before` for a while: a return to it is no shift.
        """
        if self.scale is None:
            self._start()
            return
        if self.before is None:
            self.before = self.slow
        self._before_left = self._settled
        self._reseat = []
        self._steady = self._plain = False
        self.evidence = self.effect = 0.0

    def update(self, step: int, value: float, weight: float | None = None) -> None:
        """One finite value. `weight`: items behind a fraction, whose standard error is then a floor of the scale."""
        self.seen += 1
        if not self._plain:
            if self.seen > self._burn_in:
                self._first(step, self._transform(value), weight)
            return
        x = self.value = self._transform(value)
        self.accepted = n = self.accepted + 1
        # `_step` with all that cannot apply here left out: most of the cost of a step is made of these lines
        fast, slow, sign = self.fast, self.slow, self.sign
        self.fast = fast = fast + self._fast_rate * (x - fast)
        z, clip = sign * (x - slow) / self.scale, self._clip  # type: ignore[operator]
        s = self.evidence + (clip if z > clip else -clip if z < -clip else z) - self._k
        if s <= 0:
            s = 0.0
            self.onset, self.onset_point = step, n
        elif s > self._cap:
            s = self._cap
        self.evidence = s
        if s < self._half:
            self.slow = slow = slow + self._slow_rate * (x - slow)
        self.effect = sign * (fast - slow)

    def _first(self, step: int, x: float, weight: float | None) -> None:
        """A point before the plain ones."""
        self.value = x
        self.accepted += 1
        if self._steady:
            self._step(step, x, self.accepted)
            self._plain = self.before is None and self.accepted >= self._slow_half_life
        elif self._reseat is not None:
            self._collect(step, x)
        else:
            self._weight = weight
            self._settle(step, x)

    def _settle(self, step: int, x: float) -> None:
        """A point of the first ones, on which the scale rests; those of a shift stay out of it."""
        if self.evidence < self._half:
            self._buffer.append(x)
            self._steps.append(step)
            if self.accepted in RECOMPUTED_AT or (self.scale is None and self.accepted >= self._min_points):
                first = self.scale is None
                self.scale = self._scale()
                if first:
                    self._replay()
                    return
        self._steady = self.accepted >= self._settled and self.scale is not None
        if self.scale is not None:
            self._step(step, x, self.accepted)

    def _collect(self, step: int, x: float) -> None:
        assert self._reseat is not None
        self._reseat.append(x)
        if len(self._reseat) == RESEAT_POINTS:
            self.slow = self.fast = median(self._reseat)
            self.onset, self.onset_point = step, self.accepted
            self._reseat = None
            self._steady = self.accepted >= self._settled

    def _scale(self) -> float:
        floor = self._floor
        if self._weight is not None and self._weight > 0 and self._transform is logit:
            p = 1 / (1 + math.exp(-median(self._buffer)))
            floor = max(floor, 1 / math.sqrt(self._weight * p * (1 - p)))
        return robust_scale(self._buffer, floor, settled=self.accepted >= self._settled)

    def _replay(self) -> None:
        self.slow = self.fast = median(self._buffer[:RESEAT_POINTS])
        self.onset = self._steps[0]
        for i, (step, x) in enumerate(zip(self._steps, self._buffer, strict=True)):
            self._step(step, x, i + 1)

    def _step(self, step: int, x: float, n: int) -> None:
        assert self.scale is not None
        self.fast += self._fast_rate * (x - self.fast)
        reference = self.slow
        if self.before is not None:
            reference = max(reference, self.before) if self.sign > 0 else min(reference, self.before)
            self._before_left -= 1
            if self._before_left <= 0:
                if abs(self.fast - self.before) < abs(self.fast - self.slow):
                    self.slow = self.before  # it did return: from now on no shift either
                self.before = None
        z = self.sign * (x - reference) / self.scale
        clip = self._clip
        s = self.evidence + (clip if z > clip else -clip if z < -clip else z) - self._k
        if s <= 0:
            s = 0.0
            self.onset, self.onset_point = step, n
        elif s > self._cap:
            s = self._cap
        self.evidence = s
        if s < self._half:
            slow = self._slow_rate if n >= self._slow_half_life else decay(max(self._slow_start, n))
            self.slow += slow * (x - self.slow)
            if self.before is None:
                reference = self.slow
        self.effect = self.sign * (self.fast - reference)
