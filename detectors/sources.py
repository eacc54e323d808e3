"""Where other trainers log a metric, if they do: one line of help for the blind report, from sources.toml.

`source_line(framework, metric)`; the framework is what a run says of itself ("TRL 1.16", "verl", "regimescope 0.1").
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources


def family(framework: str | None) -> str | None:
    """Table of sources.toml for a framework; None: unknown.

    >>> family("TRL 1.16.0"), family("prime_rl"), family("my own loop"), family(None)
    ('trl', 'prime-rl', None, None)
    """
    name = (framework or "").lower().replace("_", "-")
    return next((known for known in _tables() if name.startswith(known)), None)


def source_line(framework: str | None, metric: str) -> str | None:
    """What to do about a metric that a log of this framework lacks; None: nothing is known of it.

    >>> source_line("verl 0.9.1", "entropy_mean")
    'verl logs it as actor/entropy.'
    """
    known = family(framework)
    return _tables()[known].get(metric) if known else None


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    text = resources.files("regimescope.detectors").joinpath("sources.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
