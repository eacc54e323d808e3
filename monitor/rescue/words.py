"""texts.toml: the words of a plan and the numbers of the lab, by section and key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _file() -> Mapping[str, Any]:
    with Path(__file__).with_name("texts.toml").open("rb") as file:
        return tomllib.load(file)


def lab(name: str) -> int:
    """A number of steps that the lab measured."""
    return int(_file()[name])


def say(section: str, key: str, **values: object) -> str:
    """A sentence."""
    return str(_file()[section][key]).format(**values)
