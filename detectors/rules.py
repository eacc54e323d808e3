"""The rules as data: `load_rules()` reads rules.toml, `load_rules(path)` merges a user's file over it by name.

The default file is the schema: a user's file may change values, switch a rule off and reword it, not add keys or rules.
Logic is code.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from regimescope.detectors.errors import RulesError
from regimescope.detectors.types import SEVERITIES

Toml: TypeAlias = "str | int | float | bool | list[Toml] | dict[str, Toml]"
Table: TypeAlias = dict[str, Toml]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Conditions of one severity; all that are given must hold."""

    effect: float = 0.0
    "Least shift of the transformed metric (or share lost, for a draw-down)."
    evidence: float = 0.0
    "Least CUSUM evidence S, in scales."
    points: int = 1
    "`for`: points in a row."
    value: float = 0.0
    "Value that the metric itself must pass."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of rules.toml."""

    name: str
    "Unique; the key of merging, of findings and of the docs."
    signature: str
    "Kind of failure it finds or takes part in."
    enabled: bool
    "False: not built, not reported blind."
    metric: str
    "Required input; several, of which one is enough, are separated by |, several that are all needed by &."
    optional: tuple[str, ...]
    "Inputs without which it is degraded."
    levels: Mapping[str, Level]
    "By severity."
    numbers: Mapping[str, float]
    "All other numbers, by key."
    title: str
    "Few words for a person."
    text: str
    "What is seen, one sentence."
    remedy: str
    "What to do when no bound is proposed."
    help: str
    "What to log, when an input is missing."
    slices: bool = False
    "Runs on the env slices of a run, too, with more to show (detectors/slices.py)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The merged rules."""

    core: Mapping[str, float]
    "Numbers of the shift detector, of the driver's scores, of incidents: one flat table."
    texts: Mapping[str, str]
    "Texts of remedies that several rules share."
    by_name: Mapping[str, Rule]
    "In file order."
    version: str
    "12 hex digits: hash of the merged table."

    def __getitem__(self, name: str) -> Rule:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.by_name.values())


def load_rules(path: str | os.PathLike[str] | None = None) -> Rules:
    """The default rules, with the file at `path` merged over them. Raises RulesError.

    >>> load_rules()["length_collapse"].levels["critical"].evidence
    10.0
    """
    return build(load_table(path))


@cache
def default_text() -> str:
    """rules.toml as it is shipped, with its comments; as it was when this process first asked."""
    return resources.files("regimescope.detectors").joinpath("rules.toml").read_text(encoding="utf-8")


def load_table(path: str | os.PathLike[str] | None = None) -> Table:
    """The same before it becomes Rules: a table of one's own, to change numbers in. Raises RulesError."""
    table = parse(default_text(), "rules.toml")
    for row in _as_rows(table["rule"], "rules.toml"):
        row.setdefault("enabled", True)
        row.setdefault("slices", False)
    if path is not None:
        merge(table, parse(_read(Path(path)), str(path)), str(path))
    return table


def parse(text: str, where: str) -> Table:
    """TOML text to a table. Raises RulesError with the file and the parser's line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{where}: not valid TOML: {error}") from None


def merge(base: Table, user: Table, where: str) -> None:
    """Puts the user's values over the base, in place. Raises RulesError for what the base lacks and for values of
    another type."""
    for key, value in user.items():
        _known(key, base, where, "table")
        if key != "rule":
            _merge_table(_as_table(base[key], where, key), _as_table(value, where, key), f"{where}: [{key}]")
            continue
        named = {str(rule["name"]): rule for rule in _as_rows(base["rule"], where)}
        for row in _as_rows(value, where):
            if "name" not in row:
                raise RulesError(f"{where}: a [[rule]] without name; give the name of the rule to change")
            name = str(row["name"])
            _known(name, named, where, "rule")
            _merge_table(named[name], row, f"{where}: rule {name}")


def _merge_table(base: Table, user: Table, where: str) -> None:
    for key, value in user.items():
        _known(key, base, where, "key")
        old = base[key]
        if isinstance(old, dict):
            _merge_table(old, _as_table(value, where, key), f"{where}.{key}")
        elif type(old) is type(value) or (_is_number(old) and _is_number(value)):
            base[key] = value
        else:
            raise RulesError(f"{where}: {key} = {value!r}; want a {_kind(old)} such as {old!r}")


def build(table: Table) -> Rules:
    """A checked table to Rules."""
    rules = [_rule(row) for row in _as_rows(table["rule"], "rules.toml")]
    return Rules(
        core=MappingProxyType(_numbers(_as_table(table["core"], "rules.toml", "core"))),
        texts=MappingProxyType(
            {key: str(text) for key, text in _as_table(table["texts"], "rules.toml", "texts").items()}
        ),
        by_name=MappingProxyType({rule.name: rule for rule in rules}),
        version=hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:12],
    )


def _rule(row: Table) -> Rule:
    optional = row.get("optional", [])
    return Rule(
        name=str(row["name"]),
        signature=str(row["signature"]),
        enabled=row["enabled"] is True,
        metric=str(row["metric"]),
        optional=tuple(str(name) for name in optional) if isinstance(optional, list) else (),
        levels=MappingProxyType({name: _level(row[name], str(row["name"])) for name in SEVERITIES if name in row}),
        numbers=MappingProxyType(_numbers(row)),
        title=str(row["title"]),
        text=str(row["text"]),
        remedy=str(row["remedy"]),
        help=str(row["help"]),
        slices=row.get("slices") is True,
    )


def _level(value: Toml, rule: str) -> Level:
    row = _numbers(_as_table(value, "rules.toml", rule))
    return Level(
        effect=row.get("effect", 0.0),
        evidence=row.get("evidence", 0.0),
        points=int(row.get("for", 1)),
        value=row.get("value", 0.0),
    )


def _numbers(row: Table) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError(f"{path}: cannot read the rules: {error}") from None


def _known(key: str, known: Mapping[str, object], where: str, what: str) -> None:
    if key not in known:
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
        raise RulesError(f"{where}: unknown {what} {key!r}; did you mean {nearest!r}?")


def _as_table(value: Toml, where: str, key: str) -> Table:
    if not isinstance(value, dict):
        raise RulesError(f"{where}: {key} = {value!r}; want a table")
    return value


def _as_rows(value: Toml, where: str) -> list[Table]:
    if not isinstance(value, list):
        raise RulesError(f"{where}: rule = {value!r}; want [[rule]] tables")
    return [_as_table(row, where, "rule") for row in value]


def _is_number(value: Toml) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Toml) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "number" if isinstance(value, int | float) else "text" if isinstance(value, str) else "list"
