"""The blind report: per rule, what it can see of this log, and what to log so that it sees more.

`Sightings` notes when each input was last there. An input is silent once it has been missing for three of its usual
intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from regimescope.detectors.declared import Declared
from regimescope.detectors.driver import BucketHistory
from regimescope.detectors.rules import Rule
from regimescope.detectors.sources import family, source_line
from regimescope.detectors.types import REGIMES, Blind

_SILENT = 3
_BOUNDS = frozenset(("pos.w_min", "pos.w_max", "neg.w_min", "neg.w_max"))


def inputs(rule: Rule) -> list[str]:
    """All metrics that a rule may read."""
    return [name for alternatives in (*required(rule), *rule.optional) for name in alternatives.split("|")]


def required(rule: Rule) -> list[str]:
    """All that is needed; of those in one item, separated by |, one is enough."""
    return rule.metric.split("&")


class Sightings:
    """When each named metric was last there, in points, and its usual interval; a fixed number of names."""

    __slots__ = ("_absent", "_gap", "_gap_before", "_interval", "_last", "_names", "_present", "_step", "index")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._present: frozenset[str] = frozenset()  # at the newest point
        self._absent = self._names
        self._last: dict[str, int] = {}  # of those that are not there now
        self._interval: dict[str, float] = {}
        self.index = -1
        self._step = 0
        self._gap = self._gap_before = 0  # steps between the last points; a single jump (a resume) is no usual one

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        self._gap_before, self._gap, self._step = self._gap, step - self._step, step
        self.index += 1
        keys = metrics.keys()
        if keys >= self._present and keys.isdisjoint(self._absent):
            return
        present = self._names.intersection(metrics)
        for name in self._present:
            self._last[name] = self.index - 1
        for name in present - self._present:
            if name in self._last:
                gap = self.index - self._last[name]
                old = self._interval.get(name, float(gap))
                self._interval[name] = old + (gap - old) / 4
        for name in present & self._present:
            self._interval[name] = 1.0
        self._present, self._absent = present, self._names - present

    def every(self, rule: Rule) -> int:
        """Steps between two values of what a rule needs, 1 where each step has one: an onset is no finer."""
        points = (
            min((self._interval.get(name, 1.0) for name in item.split("|") if name in self._seen), default=1.0)
            for item in required(rule)
        )
        return max(1, round(max(points) * min(self._gap, self._gap_before)))

    @property
    def _seen(self) -> frozenset[str]:
        return self._present.union(self._last)

    def never(self, name: str) -> bool:
        """Not once in this log."""
        return name not in self._present and name not in self._last

    def missing(self, name: str) -> str | None:
        """Why a metric is of no use now; None: it is there."""
        if name in self._present:
            return None
        if name not in self._last:
            return f"{name} is not logged"
        silent = self.index - self._last[name]
        usual = self._interval.get(name, 1.0)
        return f"{name} is silent for {silent} points" if silent > _SILENT * usual else None


def report(
    rule: Rule,
    texts: Mapping[str, str],
    sightings: Sightings,
    history: BucketHistory,
    declared: Declared,
    warming: tuple[int, int] | None,
) -> Blind:
    """What this rule can see."""
    gaps = [gap for needed in required(rule) if (gap := _none_of(needed, sightings, declared)) is not None]
    if gaps:
        line = _help(required(rule), texts, sightings, declared)
        return Blind(rule=rule.name, status="blind", reason="; ".join(gaps), help=line or rule.help)
    if warming is not None:
        return Blind(rule=rule.name, status="warming", reason=f"warming up {warming[0]}/{warming[1]}", help="")
    gaps = [gap for option in rule.optional if (gap := _none_of(option, sightings, declared)) is not None]
    if gaps:
        buckets = any(f"{regime}." in gap for gap in gaps for regime in REGIMES)
        hint = texts["no_regimes"] if buckets else texts["optional"]
        line = _help(rule.optional, texts, sightings, declared)
        return Blind(rule=rule.name, status="degraded", reason="; ".join(gaps), help=line or hint)
    hollow = _hollow(rule, history, declared)
    if hollow is not None:
        return Blind(rule=rule.name, status="degraded", reason=hollow, help="")
    return Blind(rule=rule.name, status="ok", reason="", help="")


def _help(items: Sequence[str], texts: Mapping[str, str], sightings: Sightings, declared: Declared) -> str | None:
    """The line of the run's framework for the first input that it never logged; None: there is none."""
    known = family(declared.framework)
    for item in items:
        names = item.split("|")
        if not all(sightings.never(name) for name in names):
            continue
        for name in names:
            line = source_line(declared.framework, name)
            if line is None and known is not None and name.partition(".")[0] in REGIMES:
                line = texts.get(f"log_{known.replace('-', '_')}")
            if line is not None:
                return line
    return None


def _none_of(alternatives: str, sightings: Sightings, declared: Declared) -> str | None:
    reasons = [_missing(name, sightings, declared) for name in alternatives.split("|")]
    return None if None in reasons else "; ".join(str(reason) for reason in reasons)


def _missing(name: str, sightings: Sightings, declared: Declared) -> str | None:
    if name in _BOUNDS:
        return None if name in declared.bounds else f"{name} is not declared"
    return sightings.missing(name)


def _hollow(rule: Rule, history: BucketHistory, declared: Declared) -> str | None:
    """Inputs that are there and say nothing: not blind, but empty."""
    if not any(".clip_" in name for name in inputs(rule)):
        return None
    if declared.ratio_source == "proximal":
        return "clip signals inert: the ratio is to a policy that generated nothing (ratio_source proximal)"
    if declared.ratio_source == "infer":
        return "buckets noisy: the ratio is to the engine's own log-probabilities (ratio_source infer)"
    if history.on_policy():
        return "on-policy: every ratio is 1, so no bound can bind"
    return None
