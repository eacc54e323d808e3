"""The numbers of the rules as a person changes them: a list, a changed copy, and the lines of TOML that keep them.

    rules = changed(table_of(root), {("length_collapse", "critical.evidence"): 12.0})
    print(toml_lines({("length_collapse", "critical.evidence"): 12.0}))

A number is named by its rule and its key in rules.toml; those of a severity have a point, "critical.evidence".
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from regimescope.detectors import Rules
from regimescope.detectors.rules import Table, build, default_text, load_table, merge, parse

Name: TypeAlias = tuple[str, str]
"Rule and key."
Value: TypeAlias = bool | int | float
SWITCH = "enabled"
_COMMENT = re.compile(r"(\w+)\s*=[^#\"]*#\s*(.+)")
_ALSO_SWITCHES = "slices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One number, or the switch, of one rule."""

    rule: str
    key: str
    '"enabled", "critical.evidence", "keep_firing", …'
    value: Value
    "In force."
    shipped: Value
    "As it is shipped."
    comment: str
    "What rules.toml says behind it; often nothing."

    @property
    def changed(self) -> bool:
        """A file of the root gives it another value."""
        return self.value != self.shipped


def thresholds(table: Table) -> list[Threshold]:
    """All of a merged table, in file order."""
    shipped, comments = dict(_numbers(load_table())), _comments(default_text())
    return [
        Threshold(rule=name[0], key=name[1], value=value, shipped=shipped[name], comment=comments.get(name, ""))
        for name, value in _numbers(table)
    ]


def optional_rules() -> frozenset[str]:
    """Rules that are off as shipped: what they are worth has not been measured."""
    return frozenset(rule for (rule, key), value in _numbers(load_table()) if key == SWITCH and value is False)


def changed(table: Table, changes: Mapping[Name, Value]) -> Rules:
    """The rules of a table with other numbers; the table stays as it is. Raises RulesError for one that is unknown or
    of another type.
    """
    copied = copy.deepcopy(table)
    merge(copied, parse(toml_lines(changes), "the change"), "the change")
    return build(copied)


def toml_lines(changes: Mapping[Name, Value]) -> str:
    """What to append to a root's rules.toml: a block per rule, valid behind whatever is there already."""
    blocks = []
    for rule in dict.fromkeys(rule for rule, _ in changes):
        lines, levels = ["[[rule]]", f'name = "{rule}"'], dict[str, list[str]]()
        for (_, key), value in ((name, value) for name, value in changes.items() if name[0] == rule):
            level, _, number = key.rpartition(".")
            if level:
                levels.setdefault(level, []).append(f"{number} = {_spelled(value)}")
            else:
                lines.append(f"{key} = {_spelled(value)}")
        lines += [f"{level} = {{ {', '.join(numbers)} }}" for level, numbers in levels.items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def condition(numbers: Mapping[str, Value]) -> str:
    """The conditions of one severity in a line: "effect 0.788, evidence 10, for 2"."""
    return ", ".join(f"{key} {value:g}" for key, value in numbers.items())


def levels(found: list[Threshold]) -> dict[str, dict[str, dict[str, Value]]]:
    """Rule -> severity -> its numbers; the severity of what belongs to none is ""."""
    table: dict[str, dict[str, dict[str, Value]]] = {}
    for one in found:
        level, _, number = one.key.rpartition(".")
        table.setdefault(one.rule, {}).setdefault(level, {})[number] = one.value
    return table


def _numbers(table: Table) -> Iterator[tuple[Name, Value]]:
    rows = table["rule"]
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict):
            continue
        for key, value in row.items():
            if isinstance(value, dict):
                for number, inner in value.items():
                    if isinstance(inner, int | float):
                        yield (str(row["name"]), f"{key}.{number}"), inner
            elif isinstance(value, int | float) and key != _ALSO_SWITCHES:
                yield (str(row["name"]), key), value


def _comments(text: str) -> dict[Name, str]:
    """What stands behind the numbers of the shipped file, one a line."""
    found: dict[Name, str] = {}
    rule = ""
    for line in text.splitlines():
        if line.startswith("name = "):
            rule = line.partition('"')[2].partition('"')[0]
        elif rule and (match := _COMMENT.match(line)) is not None:
            found[rule, match[1]] = match[2].strip()
    return found


def _spelled(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
