"""The thresholds and what a change of them does, as rows of tables and words: pure, drawn by views/rules.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from regimescope.detectors import Blind, Rules
from regimescope.detectors.types import SEVERITIES
from regimescope.monitor.thresholds import Threshold, condition, levels
from regimescope.monitor.ui.texts import signature_text
from regimescope.monitor.what_rules import Change, Found

WHAT: Mapping[str, str] = {
    "effect": "least shift of the metric: in logs for lengths, entropy, KL and gradient norm, in log odds for shares",
    "evidence": "least evidence S that the shift is no noise; S is cut at 2h = {cap:g}: with more a rule never speaks",
    "value": "value that the metric itself must pass",
    "for": "points in a row for which all of it holds",
    "keep_firing": "points after which an alert whose condition is gone ends",
    "floor": "least scale of the transformed metric's noise",
    "half_life": "half-life of the mean that is watched, in points",
    "window": "points that are compared",
    "until": "last point of the run at which the rule speaks",
}
"What the numbers that many rules have mean."
SEEN = {"ok": "yes", "degraded": "partly", "blind": "no", "warming": "warming up"}
WORDS = {"goes": "goes away", "comes": "comes", "moves": "moves", "stays": "stays"}


def meaning(key: str, comment: str, core: Mapping[str, float]) -> str:
    """What a number is, for the hint beside its field; empty where only docs/detectors.md says it."""
    name = key.rpartition(".")[2]
    return comment.strip(" .") or WHAT.get(name, "").format(cap=2 * core["h"])


def counts(one: Threshold) -> bool:
    """Whether a number counts points: those have no fraction. Evidence, effect and value may be whole by chance."""
    return isinstance(one.value, int) and one.key.rpartition(".")[2] not in ("effect", "evidence", "value")


def as_written(one: Threshold, value: float) -> int | float:
    """A number as it goes into the file: whole where it is and rules.toml has a whole one."""
    return int(value) if isinstance(one.value, int) and value == int(value) else value


def by_level(found: Sequence[Threshold], width: int = 5) -> list[list[Threshold]]:
    """Lines of at most `width` fields: one per severity, then those that belong to none."""
    lines = []
    for level in (*SEVERITIES, ""):
        some = [t for t in found if t.key.rpartition(".")[0] == level]
        lines += [some[i : i + width] for i in range(0, len(some), width)]
    return lines


def rule_rows(
    rules: Rules, found: list[Threshold], optional: Collection[str], blind: Iterable[Blind]
) -> list[dict[str, object]]:
    """A row per rule in file order: on or off, the conditions of each severity, whether it sees this log."""
    table, sight = levels(found), {b.rule: b.status for b in blind}
    changed = {t.rule for t in found if t.changed}
    rows: list[dict[str, object]] = []
    for rule in rules:
        numbers = table[rule.name]
        state = "on" if rule.enabled else "off"
        state += ", optional" if rule.name in optional else ""
        rows.append(
            {
                "rule": rule.name,
                "signature": signature_text(rule.signature).title,
                "state": state,
                "sees this log": SEEN.get(sight.get(rule.name, ""), "") if rule.enabled else "",
                **{level: condition(numbers[level]) if level in numbers else "" for level in SEVERITIES},
                "changed": "by rules.toml" if rule.name in changed else "",
            }
        )
    return rows


def change_rows(changes: Sequence[Change]) -> list[dict[str, str]]:
    """A row per alert: what becomes of it, and its severity, onset and detection now and with the other numbers."""
    return [
        {
            "alert": WORDS[c.kind],
            "rule": one.rule,
            "slice": one.slice or "",
            "severity": _pair(c, lambda f: f.severity),
            "onset": _pair(c, lambda f: f"{f.onset:,}"),
            "detected": _pair(c, lambda f: f"{f.detected:,}"),
            "launch": str(one.launch_no),
            "shown": "dimmed: another explains it" if one.explained else "",
        }
        for c in changes
        if (one := c.then or c.now) is not None
    ]


def _pair(change: Change, show: Callable[[Found], str]) -> str:
    """ "412" where both agree, "412 → 420" where it moved."""
    now, then = (show(f) if f is not None else "none" for f in (change.now, change.then))
    if change.now is None or change.then is None:
        return then if change.now is None else now
    return now if now == then else f"{now} → {then}"
