"""The rules of a root: those that are shipped, with `ROOT/rules.toml` merged over them where it is there.

Read when a monitor starts, by the server and by the commands that only read, so that all of them find the same alerts.
No page writes the file: a threshold holds for everybody who looks at the root, and a file can be reviewed.
"""

from __future__ import annotations

import math
from pathlib import Path

from regimescope.detectors import Rules, RulesError, Suite
from regimescope.detectors.rules import Table, build, load_table
from regimescope.monitor.errors import RulesFileError

_TRIED_POINTS = 60


def rules_path(root: Path) -> Path:
    """Where a root's own numbers belong."""
    return root / "rules.toml"


def table_of(root: Path) -> Table:
    """The merged table of a root, as the file is now. Raises RulesFileError."""
    path = rules_path(root)
    if path.is_symlink():
        raise RulesFileError(f"{path} is a link, which is not followed: put the file itself there")
    try:
        return load_table(path if path.exists() else None)
    except RulesError as error:
        raise RulesFileError(str(error)) from None


def rules_of(root: Path) -> Rules:
    """The rules of a root, as the file is now. Raises RulesFileError, also where its numbers cannot be computed with:
    that must come out before a run is watched with them.
    """
    table = table_of(root)
    try:
        rules = build(table)
        _try(rules)
    except (RulesError, ArithmeticError, ValueError, IndexError) as error:
        raise RulesFileError(f"{rules_path(root)}: the rules do not work with these numbers: {error}") from None
    return rules


def _try(rules: Rules) -> None:
    """Points of a run that falls, on all that rules read."""
    suite = Suite(rules)
    names = {name for rule in rules for group in rule.metric.split("&") for name in group.split("|")}
    for step in range(_TRIED_POINTS):
        level = 0.5 if step < _TRIED_POINTS // 2 else 0.05 * (1 + math.sin(step))
        suite.update(step, {name: level for name in names} | {"response_length_mean": 400 * level, "accuracy.n": 256.0})
