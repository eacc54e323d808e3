"""The published objectives by name, read from presets.toml: `published("dispo")`, `published_names()`.

An entry gives the weight rule per sign and, where the source states them, aggregation, advantage and KL penalty.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from regimescope.monitor.bounds import SignRule, WeightRule
from regimescope.trainer.errors import ConfigError
from regimescope.trainer.loss.objective import KlPenalty, Objective


def published_names() -> list[str]:
    """`aspo`, `cispo`, ..."""
    return sorted(_entries())


def published_entry(name: str) -> Mapping[str, Any]:
    """What presets.toml says about one. Raises ConfigError with the nearest name."""
    entries = _entries()
    if name not in entries:
        near = get_close_matches(name.lower().replace("_", "-"), entries, 1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(published_names())}"
        raise ConfigError(f"objective {name!r}: {hint}")
    entry: Mapping[str, Any] = entries[name]
    return entry


def published_rule(name: str) -> WeightRule:
    """The weight rule with its published bounds. Raises ConfigError."""
    rule = published_entry(name)["rule"]
    return WeightRule(pos=SignRule(**rule["pos"]), neg=SignRule(**rule["neg"]))


def published(name: str, *, constant_length: int | None = None) -> Objective:
    """The objective as its source states it; Dr.GRPO needs `constant_length`. Raises ConfigError."""
    entry = published_entry(name)
    kl = entry.get("kl")
    return Objective(
        rule=published_rule(name),
        aggregation=entry.get("aggregation", "token_mean"),
        constant_length=constant_length,
        kl=None if kl is None else KlPenalty(**kl),
    )


@cache
def _entries() -> dict[str, Any]:
    return tomllib.loads((files("regimescope.trainer.loss") / "presets.toml").read_text("utf-8"))
