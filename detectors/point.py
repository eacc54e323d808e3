"""One step as the detectors see it, and the shape that all detectors share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from regimescope.detectors.declared import Declared
from regimescope.detectors.driver import Move
from regimescope.detectors.lifecycle import Reading
from regimescope.detectors.rules import Rule
from regimescope.detectors.types import Remedy


class Point:
    """The present step. One object is reused for all steps, filled by the suite; detectors must not keep it."""

    __slots__ = (
        "accuracy_floored",
        "accuracy_mean",
        "accuracy_share",
        "clean",
        "declared",
        "early_push",
        "finite",
        "get",
        "index",
        "metrics",
        "signs",
        "signs_before",
        "step",
        "sync_gap",
        "sync_step",
        "updated",
    )

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.step = 0
        self.index = -1  # calls of update so far, from 0
        self.metrics: Mapping[str, float] = {}
        self.finite: Mapping[str, float] = self.metrics  # the metrics that are finite: nearly always the same mapping
        self.get: Callable[[str], float | None] = self.finite.get  # the metric if it is there and finite
        self.clean = (
            True  # False: so many rollouts failed for infrastructure that the step says nothing about the policy
        )
        self.updated = True  # False: no gradient update has happened yet in this run, its buffer still fills
        self.accuracy_floored = False
        self.accuracy_mean: float | None = None  # a short mean; None: not logged at this point
        self.accuracy_share: float | None = None  # of that mean of its best
        self.early_push: Mapping[str, float] = {}  # what EarlyPush has to tell the other early rules
        self.sync_step: int | None = None  # of the last weight sync that was told
        self.sync_gap: int | None = None  # steps between the last two of them
        self.signs: set[str] = set()  # early rules whose condition has held long enough, lints at warning
        self.signs_before: set[str] = set()  # of the point before

    def begin(self, step: int, metrics: Mapping[str, float]) -> None:
        """The next step; the suite fills `clean` and `updated`."""
        self.step, self.metrics = step, metrics
        # one sum in C tells that all is well; only where it is not finite are the values looked at one by one
        finite = math.isfinite(sum(metrics.values()))
        self.finite = metrics if finite else {name: x for name, x in metrics.items() if math.isfinite(x)}
        self.get = self.finite.get
        self.index += 1
        self.accuracy_floored, self.accuracy_mean, self.accuracy_share = False, None, None
        if self.signs or self.signs_before:
            self.signs_before, self.signs = self.signs, set()

    def note_sync(self, step: int) -> None:
        """The rollout engine got new weights."""
        self.sync_gap = None if self.sync_step is None else step - self.sync_step
        self.sync_step = step


class Detector(ABC):
    """A rule at work. `update` returns None where its metric is missing: then nothing changes."""

    __slots__ = ("rule",)

    follows_data = False
    "A change of data (curriculum, length limit, sampling) restarts its reference."
    has_grace = False
    "After a resume or a change of bounds its infos and warnings wait; guards and the lint do not."

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    @abstractmethod
    def update(self, point: Point) -> Reading | None:
        """What the rule reads off this step."""

    def moves(self, direction: str | None) -> Sequence[Move] | None:
        """Bounds that can help against what it finds; None: the failure has no driver among the regimes."""
        return None

    def remedy(self) -> Remedy | None:
        """A remedy that needs no evidence from the regimes; None: it is looked for there."""
        return None

    def reseat(self) -> None:
        """After a resume or a change of bounds: find the reference again. Guards keep their state."""
        return

    def data_changed(self) -> None:
        """After a change of data; by default as a reseat where the rule follows the data."""
        if self.follows_data:
            self.reseat()

    def warming(self) -> tuple[int, int] | None:
        """Points seen and needed, for a rule with a warm-up that is not over."""
        return None
