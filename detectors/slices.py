"""The env slices of a run (its tasks), each with a suite of its own beside that of the whole run.

`Slices(suite)` takes the suite of the whole; `update(step, metrics by slice, events)` follows each of its updates. On a
slice run the rules that rules.toml marks `slices = true`: those that judge the policy by what one task's responses
show. A run of 16 tasks would raise 16 times the false alarms of one, from means over a sixteenth of the responses, so
a slice has to show more (`slice_rules`), infos are left out, and what the whole run shows already is dimmed: an alert
of a slice is explained by one of the same signature that is open on the whole and no less severe, and by those that
explain it within one suite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from regimescope.detectors.blind import inputs
from regimescope.detectors.rules import Level, Rule, Rules
from regimescope.detectors.score import REGIME_KEYS
from regimescope.detectors.suite import Suite
from regimescope.detectors.types import Event, Finding, Severity

SIGNS = (
    "accuracy", "entropy_mean", "infra_failed_frac", "kl_ref", "kl_step", "reward_mean", "truncated_frac",
    "zero_variance_frac",
)  # fmt: skip
"What distress, its opposite and the verdict on a step read, beside the inputs of the rules."
_DECLARING = ("start", "resume", "rollback", "bounds_changed")
_BELOW_CAP = 0.5  # evidence is cut at 2h: what a rule needs stays this much below, or it could never speak


def slice_rules(rules: Rules) -> Rules:
    """The rules of a slice: those marked `slices`, evidence, effect and points in a row times `core.slice_evidence`,
    `core.slice_effect` and `core.slice_points`, shares at least the rule's `slice_value`; the others are off.

    >>> from regimescope.detectors import load_rules
    >>> [slice_rules(load_rules())["length_collapse"].levels[name].points for name in ("warning", "critical")]
    [4, 4]
    """
    core = rules.core
    named = {rule.name: _raised(rule, core) if rule.slices else replace(rule, enabled=False) for rule in rules}
    return replace(rules, by_name=MappingProxyType(named))


def _raised(rule: Rule, core: Mapping[str, float]) -> Rule:
    def raised(level: Level) -> Level:
        cap = max(level.evidence, 2 * core["h"] - _BELOW_CAP)
        return replace(
            level,
            effect=level.effect * core["slice_effect"],
            evidence=min(level.evidence * core["slice_evidence"], cap),
            points=round(level.points * core["slice_points"]),
            value=max(level.value, rule.numbers.get("slice_value", level.value)),
        )

    return replace(rule, levels=MappingProxyType({name: raised(level) for name, level in rule.levels.items()}))


def slice_inputs(rules: Rules) -> frozenset[str]:
    """Metrics that the suite of a slice can use; beside a mean its `<name>.n`."""
    read = {name for rule in rules if rule.enabled and rule.slices for name in inputs(rule)}
    return frozenset(read.union(SIGNS, REGIME_KEYS))


class Slices:
    """A suite per env slice, made when the slice first appears; the state of each is bounded.

    >>> whole = Suite()
    >>> slices = Slices(whole)
    >>> for step in range(60):
    ...     length = {"sums": 300.0, "proofs": 300.0 if step < 40 else 4.0}
    ...     _ = whole.update(step, {"response_length_mean": sum(length.values()) / 2})
    ...     for found in slices.update(step, {task: {"response_length_mean": length[task]} for task in length}):
    ...         print(step, found.slice, found.signature, found.severity, "since", found.step_onset)
    43 proofs length_collapse critical since 39
    """

    def __init__(self, whole: Suite) -> None:
        """`whole`: the suite of the run; updated before this with every step."""
        self._whole = whole
        self._rules = slice_rules(whole.rules)
        self._suites: dict[str, Suite] = {}  # sorted by slice, so that the order of rows changes nothing
        self._declared: dict[str, object] = {}
        self._reach = int(whole.rules.core["incident"])
        self._open: dict[str, tuple[str, Severity, int]] = {}  # alerts of the whole: until which step each explains
        self._beside: dict[str, tuple[str, Severity]] = {}

    def update(
        self, step: int, slices: Mapping[str, Mapping[str, float]], events: Sequence[Event] = ()
    ) -> list[Finding]:
        """One step of the slices that have rows in it; findings as `Suite.update` gives them."""
        for event in events:
            if event.kind in _DECLARING:
                self._declared = {**({} if event.kind == "start" else self._declared), **event.data}
        found = list(self._explain(step))
        fresh = slices.keys() - self._suites.keys()
        if fresh:
            made = {value: Suite(self._rules, slice=value, whole=self._whole) for value in fresh}
            self._suites = dict(sorted({**self._suites, **made}.items()))
        for value, suite in self._suites.items():
            metrics = slices.get(value)
            if value in fresh:
                suite.explain(self._beside)
                found += suite.update(step, slices[value], [Event(kind="start", step=step, data=self._declared)])
            elif metrics is not None or events:
                found += suite.update(step, metrics or {}, events)
        return found

    def _explain(self, step: int) -> Iterator[Finding]:
        """Tell the slices what is open on the whole; an alert that has ended explains a little longer, since the
        slices end theirs later."""
        for rule, (signature, severity) in self._whole.firing().items():
            self._open[rule] = (signature, severity, step + self._reach)
        if not self._open and not self._beside:
            return
        self._open = {rule: alert for rule, alert in self._open.items() if alert[2] >= step}
        beside = {rule: (signature, severity) for rule, (signature, severity, _) in self._open.items()}
        if beside != self._beside:
            self._beside = beside
            for suite in self._suites.values():
                yield from suite.explain(beside)

    def findings(self) -> list[Finding]:
        """All episodes of all slices so far, in the order in which they opened."""
        return sorted(
            (finding for suite in self._suites.values() for finding in suite.findings()),
            key=lambda finding: finding.step_detected,
        )
