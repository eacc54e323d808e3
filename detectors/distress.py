"""Distress and its opposite: do other metrics say that the run is in trouble, or that a shift is meant?

Neither raises an alert; length_collapse asks both. "Recent" is within the last `core.recent` points.
"""

from __future__ import annotations

from collections.abc import Mapping

from regimescope.detectors.core import Shift, identity, log_value, logit
from regimescope.detectors.point import Point


class Distress:
    """Accuracy down, gradient norm up x3, KL up x4, dead groups up; or accuracy at its floor, which needs no
    reference."""

    __slots__ = ("_accuracy", "_core", "_dead", "_h", "_kl_ref", "_kl_step", "_last", "entropy", "grad_norm", "signs")

    def __init__(self, core: Mapping[str, float]) -> None:
        self._core, self._h = core, core["h"]
        self._accuracy = Shift(logit, -1, core["accuracy_floor"], core)
        self.grad_norm = Shift(log_value, 1, core["grad_norm_floor"], core)
        self._kl_step = Shift(log_value, 1, core["kl_floor"], core)
        self._kl_ref = Shift(log_value, 1, core["kl_floor"], core)
        self._dead = Shift(logit, 1, core["share_floor"], core)
        self.entropy = Shift(log_value, -1, core["entropy_floor"], core, fast=3, slow=120)
        self._last: int | None = None
        self.signs: list[str] = []

    def update(self, point: Point) -> None:
        """`signs` holds the metrics that show distress at this point."""
        core, step, get = self._core, point.step, point.get
        signs = []
        shifted = self._shifted(self._accuracy, step, get("accuracy"), "distress_accuracy", get("accuracy.n"))
        if shifted or point.accuracy_floored:
            signs.append("accuracy")
        if self._shifted(self.grad_norm, step, get("grad_norm"), "distress_grad_norm"):
            signs.append("grad_norm")
        if self._shifted(self._kl_step, step, get("kl_step"), "distress_kl"):
            signs.append("kl_step")
        if not self._kl_step.seen and self._shifted(self._kl_ref, step, get("kl_ref"), "distress_kl"):
            signs.append("kl_ref")
        dead = get("zero_variance_frac")
        if (
            self._shifted(self._dead, step, dead, "distress_dead")
            and dead is not None
            and dead > core["distress_dead_value"]
        ):
            signs.append("zero_variance_frac")
        entropy = get("entropy_mean")
        if entropy is not None:
            self.entropy.update(step, entropy)
        if signs:
            self._last = point.index
        self.signs = signs

    def _shifted(self, shift: Shift, step: int, value: float | None, effect: str, weight: float | None = None) -> bool:
        """Whether the shift holds at a point of its metric; without one it says nothing."""
        if value is None:
            return False
        shift.update(step, value, weight)
        return shift.evidence > self._h and shift.effect > self._core[effect]

    def recent(self, point: Point) -> bool:
        return self._last is not None and point.index - self._last < self._core["recent"]

    def entropy_moved(self) -> bool:
        """By more than a factor 1.5 either way."""
        return abs(self.entropy.effect) > self._core["overrule_entropy"]

    def reseat(self) -> None:
        for shift in (self._accuracy, self.grad_norm, self._kl_step, self._kl_ref, self._dead, self.entropy):
            shift.reseat()

    def data_changed(self) -> None:
        self._accuracy.reseat()
        self._dead.reseat()


class Benign:
    """Reward rose by more than one scale, or truncation fell: shorter is what was asked for."""

    __slots__ = ("_core", "_last", "_reward", "_truncated")

    def __init__(self, core: Mapping[str, float]) -> None:
        self._core = core
        self._reward = Shift(identity, 1, core["reward_floor"], core)
        self._truncated = Shift(logit, -1, core["share_floor"], core)
        self._last: int | None = None

    def update(self, point: Point) -> None:
        reward, truncated = point.get("reward_mean"), point.get("truncated_frac")
        if reward is None:
            reward = point.get("accuracy")
        benign = False
        if reward is not None:
            self._reward.update(point.step, reward)
            scale = self._reward.scale
            benign = scale is not None and self._reward.effect > scale
        if truncated is not None:
            self._truncated.update(point.step, truncated)
            benign = benign or self._truncated.effect > self._core["benign_truncation"]
        if benign:
            self._last = point.index

    def recent(self, point: Point) -> bool:
        return self._last is not None and point.index - self._last < self._core["recent"]

    def reseat(self) -> None:
        self._reward.reseat()
        self._truncated.reseat()

    def data_changed(self) -> None:
        self.reseat()
