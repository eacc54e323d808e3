"""The suite: every rule of the rules over one stream of steps. `Suite().update(step, metrics, events)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regimescope.detectors.rules import Rules, load_rules
from regimescope.detectors.types import Blind, Event, Finding


class Suite:
    """All rules over one run (or one env slice of it). State is rebuilt by replay, never stored.

    `slice` names the env slice that is watched; it is copied into the findings.
    """

    def __init__(self, rules: Rules | None = None, *, slice: str | None = None) -> None:
        self.rules = load_rules() if rules is None else rules
        self.rule_version = self.rules.version
        self.slice = slice
        self._findings: list[Finding] = []

    def update(self, step: int, metrics: Mapping[str, float], events: Sequence[Event] = ()) -> list[Finding]:
        """Findings that opened or changed at this step, each the full current picture of its episode."""
        return []

    def findings(self) -> list[Finding]:
        """All episodes so far, current picture, in the order in which they opened. Pending ones are in `pending()`."""
        return list(self._findings)

    def pending(self) -> list[Finding]:
        """Conditions that hold, but not long enough; they may vanish."""
        return []

    def blind(self) -> list[Blind]:
        """Per enabled rule: what it can see of this log."""
        return []

    def warming(self) -> tuple[int, int]:
        """Points seen, points needed before the shift rules speak."""
        return 0, 10
