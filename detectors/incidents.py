"""Which findings belong together, and which alert explains another.

Findings whose onsets lie within `core.incident` steps of each other share an incident number. An inhibited alert is
kept and shown dimmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from regimescope.detectors.lifecycle import RANK
from regimescope.detectors.types import Severity

EARLY = ("early_accuracy", "early_all_wrong", "early_r4")
LINT = "bounds_lint"
UNNAMED = ("accuracy_collapse", *EARLY)
"Signatures that say that accuracy is lost, not how: never the probable cause beside one that names the failure."
_KEPT = 8


class Incidents:
    """Hands out incident numbers; the lint never joins an incident, nor does it start one that others join.

    A slow rule tells its onset late: by then a later incident may be open, so the last few are kept.
    """

    __slots__ = ("_next", "_open", "_reach")

    def __init__(self, reach: float) -> None:
        self._reach = reach
        self._next = 0
        self._open: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)  # number, first and last onset, the newest last

    def number(self, onset: int, *, apart: bool = False) -> int:
        """The incident of a finding that opens now with this onset."""
        if not apart:
            away = {i: max(first - onset, onset - last, 0) for i, (_, first, last) in enumerate(self._open)}
            nearest = min(away, key=lambda i: (away[i], -i), default=None)
            if nearest is not None and away[nearest] <= self._reach:
                number, first, last = self._open[nearest]
                self._open[nearest] = (number, min(first, onset), max(last, onset))
                return number
            self._open.append((self._next, onset, onset))
        self._next += 1
        return self._next - 1


@dataclass(frozen=True, slots=True)
class _Inhibition:
    signature: str
    least: Severity
    takes: frozenset[str] | None
    "Signatures; None: all but the lint."
    outranked: frozenset[str] = frozenset()
    "Of these only alerts that are no more severe."
    only: Mapping[str, str] = field(default_factory=dict)
    "Of these only alerts with this direction."


_ACCURACY = frozenset(("accuracy_collapse",))
_DEAD = frozenset(("zero_signal", "no_signal"))
_DECAY = frozenset(("exploration_decay",))
_INHIBITIONS = (
    _Inhibition("nonfinite", "critical", None),
    _Inhibition("infra_failed", "critical", frozenset(("length_collapse", "exploration_decay", *_ACCURACY, *EARLY))),
    _Inhibition("infra_failed", "critical", frozenset(("length_runaway", *_DEAD))),
    _Inhibition("engine_mismatch", "critical", frozenset((*_ACCURACY, *_DEAD, *EARLY))),
    _Inhibition("repetition_collapse", "critical", frozenset(("entropy_collapse", "length_runaway"))),
    _Inhibition("length_collapse", "critical", frozenset(("entropy_collapse",))),
    _Inhibition("repetition_collapse", "warning", frozenset(("exploration_decay", *_ACCURACY, *EARLY)), _ACCURACY),
    _Inhibition("length_collapse", "warning", frozenset(("exploration_decay", *_ACCURACY, *EARLY)), _ACCURACY),
    _Inhibition("repetition_collapse", "warning", _DEAD),
    _Inhibition("length_collapse", "warning", _DEAD),
    _Inhibition("entropy_collapse", "warning", _DECAY, _DECAY, only={"exploration_decay": "down"}),
    _Inhibition("entropy_collapse", "warning", frozenset((*_ACCURACY, *_DEAD, *EARLY)), _ACCURACY),
    _Inhibition("exploration_decay", "warning", frozenset((*_ACCURACY, *EARLY)), _ACCURACY),
    _Inhibition("exploration_decay", "critical", _DEAD),
    _Inhibition("accuracy_collapse", "critical", _DEAD),
    _Inhibition("zero_signal", "warning", frozenset(("no_signal",))),
)
"In this order: an alert that is itself inhibited inhibits nothing."


def inhibited(
    firing: Mapping[str, tuple[str, Severity]], directions: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Rule to the rule that explains it, from the firing rules with their signature and severity, and with the
    direction of those that have one.

    >>> inhibited({"length_floor": ("length_collapse", "critical"), "decay": ("exploration_decay", "warning")})
    {'decay': 'length_floor'}
    """
    by: dict[str, str] = {}
    for inhibition in _INHIBITIONS:
        for rule, (signature, severity) in firing.items():
            if signature != inhibition.signature or RANK[severity] < RANK[inhibition.least] or rule in by:
                continue
            for other, (name, level) in firing.items():
                taken = name != LINT if inhibition.takes is None else name in inhibition.takes
                outranked = name in inhibition.outranked and RANK[level] > RANK[severity]
                other_way = name in inhibition.only and (directions or {}).get(other) != inhibition.only[name]
                if taken and not outranked and not other_way and name != signature:
                    by.setdefault(other, rule)
    return by


def explained(
    firing: Mapping[str, tuple[str, Severity]],
    directions: Mapping[str, str | None],
    whole: Mapping[str, tuple[str, Severity]],
) -> dict[str, str]:
    """`inhibited` for a slice beside what fires on the whole run, which explains the same signature as well, up to its
    own severity.

    >>> length = {"length_collapse": ("length_collapse", "warning")}
    >>> explained(length, {}, {"length_floor": ("length_collapse", "critical")})
    {'length_collapse': 'length_floor'}
    """
    both = {f"whole {rule}": alert for rule, alert in whole.items()} | dict(firing)
    by = {rule: other.removeprefix("whole ") for rule, other in inhibited(both, directions).items() if rule in firing}
    for rule, (signature, severity) in firing.items():
        for other, (name, level) in whole.items():
            if name == signature and RANK[level] >= RANK[severity]:
                by.setdefault(rule, other)
    return by
