"""Exponential means: plain (`Ewma`), and with the standard error that autocorrelated noise leaves them (`NoisyEwma`).

`update(value)` per point; read `.value` after it. O(1) memory: the noisy one keeps its last 8 points.
"""

from __future__ import annotations

import math
from collections import deque

_NOISE_RATE = 1 - 0.5 ** (1 / 480)
_SETTLED = 40
_FAR = 8
_LARGE = 3


def decay(half_life: float) -> float:
    """Rate of an exponential mean with this half-life in points."""
    return 1.0 - math.exp(-math.log(2) / half_life)


class Ewma:
    """An exponential mean that starts as a plain mean.

    >>> mean = Ewma(8)
    >>> for value in (1.0, 2.0, 3.0):
    ...     mean.update(value)
    >>> mean.value
    2.0
    """

    __slots__ = ("_rate", "count", "value")

    def __init__(self, half_life: float) -> None:
        self._rate = decay(half_life)
        self.restart()

    def restart(self) -> None:
        self.value = 0.0
        self.count = 0

    def update(self, value: float) -> None:
        self.count = count = self.count + 1
        rate, plain = self._rate, 1 / count
        self.value += (rate if rate > plain else plain) * (value - self.value)


class NoisyEwma(Ewma):
    """An Ewma that knows its standard error under AR(1) noise. While `moved` is set, the value is not where it used to
    be: a difference then counts at most `_LARGE` times the usual one, or a sudden loss would pass for noise."""

    __slots__ = ("_far", "_near", "_past", "moved")

    def restart(self) -> None:
        super().restart()
        self.moved = False
        self._past: deque[float] = deque(maxlen=_FAR)
        self._near = self._far = 0.0  # mean |difference| over 1 point, over _FAR points

    def update(self, value: float) -> None:
        self.count = count = self.count + 1  # Ewma.update, without the call
        rate, plain = self._rate, 1 / count
        self.value += (rate if rate > plain else plain) * (value - self.value)
        past = self._past
        if count > _FAR:
            plain, rate = 1 / (count - 1), 1 / (count - _FAR)
            near, far = self._near, self._far
            step, long = abs(value - past[-1]), abs(value - past[0])
            if self.moved:
                step, long = min(step, _LARGE * near), min(long, _LARGE * far)
            self._near = near + (plain if plain > _NOISE_RATE else _NOISE_RATE) * (step - near)
            self._far = far + (rate if rate > _NOISE_RATE else _NOISE_RATE) * (long - far)
        elif count > 1:
            self._near += max(_NOISE_RATE, 1 / (count - 1)) * (abs(value - past[-1]) - self._near)
        past.append(value)

    def standard_error(self) -> float:
        """Of the mean, times 1.5 for what AR(1) leaves out.

        From differences over 1 and m = 8 points, which a slow drift hardly moves: with AR(1) noise
        E|d_m| = 2·sigma·sqrt((1 - phi^m)/pi), so (E|d_1|/E|d_m|)² = (1 - phi)/(1 - phi^m), solved for phi by iteration.
        Then var = sigma² · a/(2 - a) · (1 + phi·b)/(1 - phi·b) with a the rate and b = 1 - a.
        """
        if self._near <= 0:
            return 0.0
        least = 0.3 if self.count < _SETTLED else 0.0  # few differences say little about phi
        ratio = (self._near / self._far) ** 2 if self._far > 0 else 1.0
        phi = min(0.95, max(least, 1 - ratio))
        for _ in range(4):
            phi = min(0.95, max(least, 1 - ratio * (1 - phi**_FAR)))
        sigma = self._near / 2 * math.sqrt(math.pi / (1 - phi))
        rate = max(self._rate, 1 / self.count)
        carried = phi * (1 - rate)
        return 1.5 * sigma * math.sqrt(rate / (2 - rate) * (1 + carried) / (1 - carried))
