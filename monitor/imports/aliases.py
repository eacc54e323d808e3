"""The table of other trainers' keys, `aliases.csv`: which canonical metric a key feeds, how, and how far to trust it.

    find("actor/entropy", "verl") -> (Alias(canonical="entropy_mean", ...), None)
    find("val-core/math/acc/mean@8", "verl") -> (Alias(canonical="eval.accuracy", ...), "math")

In a key `*` stands for one part of a path, `{env}` for an environment, which may hold slashes. Rows of the framework
`*` hold for every log. Facts and their sources: docs/import.md. Standard library.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from regimescope.monitor.metrics import METRICS
from regimescope.monitor.series import BOUND_NAMES

ANY = "*"
TRANSFORMS = ("", "diff", "1-x", "1-x/100")
"What is done to a value: nothing; the difference from the row before; to one, as a share or as a percentage."


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """One row of the table."""

    frameworks: tuple[str, ...]
    'Whose key it is; ("*",) = anybody\'s.'
    version: str
    "Where it was read, or up to which version it is in use; empty = all that are known."
    source_key: str
    canonical: str
    "Our name."
    unit: str
    transform: str
    "One of TRANSFORMS."
    trust: str
    "exact | proxy: related, not the same."
    order: int
    "Position in the table: among several keys of one name the first wins."


@cache
def table() -> tuple[Alias, ...]:
    """The rows in order. Raises ValueError for a row that makes no sense."""
    with open(Path(__file__).with_name("aliases.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    made = []
    for order, row in enumerate(rows):
        if row["transform"] not in TRANSFORMS or row["trust"] not in ("exact", "proxy"):
            raise ValueError(f"aliases.csv, row {order + 2}: transform {row['transform']!r}, trust {row['trust']!r}")
        frameworks = tuple(row.pop("framework").split("|"))
        made.append(Alias(frameworks=frameworks, order=order, **row))
    return tuple(made)


def frameworks() -> tuple[str, ...]:
    """Names of the table, in order."""
    return tuple(dict.fromkeys(name for alias in table() for name in alias.frameworks if name != ANY))


@lru_cache(maxsize=65536)
def find(key: str, framework: str | None) -> tuple[Alias, str | None] | None:
    """The alias of a key in a framework's log and the environment that it names; None = an unknown key."""
    plain, patterns = _of(framework)
    if key in plain:
        return plain[key], None
    for pattern, alias in patterns:
        match = pattern.fullmatch(key)
        if match is not None:
            return alias, match.groupdict().get("env")
    return None


def is_canonical(name: str) -> bool:
    """Whether it is a name of ours, of the whole or of an evaluation."""
    return name.removeprefix("eval.") in METRICS or name in BOUND_NAMES


_TELLING = frozenset({"reward_mean", "response_length_mean", "entropy_mean", "kl_step"})
"A framework is known by its own key of one of these; learning rate and loss have the same name everywhere."


def guess(keys: Iterable[str]) -> str | None:
    """The framework most of whose keys are among these; the first of the table where several tie, None where none is.

    >>> guess(["critic/score/mean", "actor/entropy", "response_length/mean"])
    'verl'
    """
    known = list(keys)
    votes: Counter[str] = Counter()
    for name in frameworks():
        found = [alias.canonical for key in known if (alias := _own(key, name)) is not None]
        votes[name] = len(found) if _TELLING & set(found) else 0
    best, count = max(votes.items(), key=lambda item: item[1], default=(None, 0))
    return best if count else None


def _own(key: str, framework: str) -> Alias | None:
    found = find(key, framework) or find(key.removeprefix("train/"), framework)
    return found[0] if found is not None and framework in found[0].frameworks else None


@cache
def _of(framework: str | None) -> tuple[dict[str, Alias], list[tuple[re.Pattern[str], Alias]]]:
    plain: dict[str, Alias] = {}
    patterns = []
    mine = [a for a in table() if framework in a.frameworks] + [a for a in table() if ANY in a.frameworks]
    for alias in mine:
        if "*" in alias.source_key or "{" in alias.source_key:
            patterns.append((_pattern(alias.source_key), alias))
        else:
            plain.setdefault(alias.source_key, alias)
    return plain, patterns


def _pattern(key: str) -> re.Pattern[str]:
    escaped = re.escape(key).replace(re.escape("{env}"), "(?P<env>.+?)").replace(re.escape("*"), "[^/]+")
    return re.compile(escaped)
