"""One rule at work: its detector, the state of its alert, and the picture of the present episode."""

from __future__ import annotations

from regimescope.detectors.declared import Declared
from regimescope.detectors.driver import BucketHistory, Driver, drive
from regimescope.detectors.incidents import LINT
from regimescope.detectors.lifecycle import QUIET, Lifecycle, Reading
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rules
from regimescope.detectors.types import Finding, Remedy, State

_NO_DRIVER = Driver(remedy=Remedy())
_OF_ENTROPY = ("exploration_decay", "entropy_collapse")  # failures whose direction is that of entropy


class Watch:
    """Turns readings into one episode after another. `update` tells whether the picture changed."""

    __slots__ = (
        "_buckets", "_changed_at", "_declared", "_detected", "_driver", "_last", "_points_after", "_reading",
        "_rules", "_size_before", "_slice", "_verdict", "detector", "incident", "inhibited_by", "life", "logged_every",
        "onset", "rule",
    )  # fmt: skip

    def __init__(
        self, detector: Detector, rules: Rules, buckets: BucketHistory, declared: Declared, slice: str | None
    ) -> None:
        self.detector, self.rule = detector, detector.rule
        self._rules, self._buckets, self._declared, self._slice = rules, buckets, declared, slice
        self.life = Lifecycle(int(detector.rule.numbers["keep_firing"]))
        self.clear()

    def clear(self) -> None:
        """Between two episodes."""
        self._reading = QUIET
        self._driver = _NO_DRIVER
        self.onset = self._detected = self._last = 0
        self.incident: int | None = None
        self.inhibited_by: str | None = None
        self.logged_every = 1  # steps between two values of its metric: the onset is no finer
        self._changed_at: int | None = None  # step of the last change of bounds within the episode
        self._size_before: float | None = None
        self._points_after = 0
        self._verdict: str | None = None

    def update(self, point: Point) -> bool:
        """One point; True when the alert opened, rose, ended, or got its verdict on a change of bounds."""
        reading = self.detector.update(point)
        life = self.life
        if reading is None or (reading is QUIET and not life.firing and life.grace == 0 and life.pending is None):
            return False
        change = life.update(reading)
        if reading is not QUIET:
            self._reading, self._last = reading, point.step
        if change == "opened":
            self.onset, self._detected = min(reading.onset, point.step), point.step
        if change in ("opened", "escalated"):
            self._attribute(point.step)
        return self._judge(reading) or change is not None

    def _attribute(self, step: int) -> None:
        row = self._reading.row or self.rule
        remedy = self.detector.remedy()
        if remedy is not None:
            self._driver = Driver(remedy=remedy)
            return
        direction = self._reading.direction
        moves = self.detector.moves(direction)
        if moves is None:
            self._driver = Driver(remedy=Remedy(text=row.remedy))
            return
        entropy = {"up": 1, "down": -1}.get(direction or "", 0) if self.rule.signature in _OF_ENTROPY else 0
        self._driver = drive(
            self._buckets,
            self._declared,
            self._rules,
            onset=self.onset,
            step=step,
            moves=moves,
            otherwise=row.remedy,
            signature=self.rule.signature,
            entropy=entropy,
        )

    def bounds_changed(self, step: int) -> None:
        """Marks an open episode: the old proposal no longer stands, and a verdict on the change is due."""
        if self.rule.signature == LINT:  # it judges the bounds themselves, at once
            return
        self._changed_at, self._size_before, self._points_after, self._verdict = step, self._reading.size, 0, None
        text = self._rules.texts["after_change"].format(step=step, points=int(self._rules.core["verdict"]))
        self._driver = Driver(regime=self._driver.regime, evidence=self._driver.evidence, remedy=Remedy(text=text))

    def _judge(self, reading: Reading) -> bool:
        """After `core.verdict` points: did the change of bounds help? True when the verdict falls at this point."""
        if self._changed_at is None or self._verdict is not None or not self.life.firing:
            return False
        self._points_after += 1
        if self._points_after < self._rules.core["verdict"]:
            return False
        before, now = self._size_before, reading.size
        if not reading.holds:
            self._verdict = "back at baseline"
        elif before is not None and now is not None and now < before / 2:
            self._verdict = "recovering"
        else:
            self._verdict = "no better"
        return True

    @property
    def direction(self) -> str | None:
        """Of the newest picture."""
        return self._reading.direction

    @property
    def moves_a_bound(self) -> bool:
        """Whether the remedy of the episode names one."""
        return self._driver.remedy.bound is not None

    def reseat(self, grace: int) -> None:
        """`grace`: points in which infos and warnings wait, where the rule has a grace."""
        self.detector.reseat()
        if self.detector.has_grace:
            self.life.grace = grace

    def finding(self) -> Finding:
        """The current picture. Of a rule that is neither firing nor pending it is the episode that has just ended."""
        life, reading = self.life, self._reading
        row = reading.row or self.rule
        pending = not life.firing and life.pending is not None and self.incident is None
        state: State = "firing" if life.firing else "pending" if pending else "resolved"
        marks: dict[str, float | str | bool | None] = (
            {} if self._changed_at is None else {"bounds_changed_at": self._changed_at}
        )
        if self._verdict is not None:
            marks["verdict"] = self._verdict
        if self.logged_every > 1:
            marks["logged_every"] = self.logged_every
        return Finding(
            signature=self.rule.signature,
            rule=self.rule.name,
            severity=(life.pending if pending else life.severity) or "info",
            state=state,
            ordinal=life.ordinal + pending,
            step_onset=reading.onset if pending else self.onset,
            step_detected=self._last if pending else self._detected,
            step_last=self._last,
            score=reading.score,
            direction=reading.direction,
            slice=self._slice,
            driver=self._driver.regime,
            evidence={**reading.evidence, **self._driver.evidence, **marks},
            remedy=self._driver.remedy,
            title=row.title,
            text=row.text,
            incident=-1 if self.incident is None else self.incident,
            inhibited_by=self.inhibited_by,
        )
