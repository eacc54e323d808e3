"""What a framework makes of its settings: `effective("verl", {"loss_mode": "cispo"})` is the window per sign, with what
was taken from a default. The facts are framework_windows.toml. Standard library.

>>> effective("verl", {"actor_rollout_ref.actor.policy_loss.loss_mode": "cispo"}).bounds.neg.w_max
1.2
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from regimescope.monitor.bounds import Base, Bounds, SignBounds, SignRule, WeightRule
from regimescope.monitor.errors import LintError

SIDES = ("pos_min", "pos_max", "neg_min", "neg_max")
_NO_BOUND = {"pos_min": 0.0, "pos_max": math.inf, "neg_min": 0.0, "neg_max": math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where one bound of a window comes from."""

    value: float
    "Absolute weight; 0 below and infinity above = no bound."
    key: str
    "The setting that makes it; empty = the framework has none."
    given: float | None
    "As the setting says it; None = its default."
    form: str
    "absolute | one_minus | one_plus"

    def spelt(self, weight: float) -> float:
        """The setting's number that makes this weight."""
        made = {"absolute": weight, "one_minus": 1 - weight, "one_plus": weight - 1}[self.form]
        return round(made, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The window that a framework's settings make."""

    framework: str
    version: str
    "Where the facts were read."
    loss: str
    "Name in the table: cispo, ppo, ..."
    selected: Mapping[str, str]
    "The settings that chose it, defaults included."
    caps: bool
    "True: the weight is held at the bound; False: a token beyond it gets no gradient."
    sides: Mapping[str, Bound]
    "By SIDES."
    note: str
    sequence: bool
    "The ratio is the whole sequence's."

    @property
    def bounds(self) -> Bounds:
        """As absolute weights. Raises LintError for settings that make no window."""
        values = {side: bound.value for side, bound in self.sides.items()}
        for sign in ("pos", "neg"):
            low, high = values[f"{sign}_min"], values[f"{sign}_max"]
            if not 0 <= low <= high:
                side = self.sides[f"{sign}_min" if low < 0 or math.isnan(low) else f"{sign}_max"]
                raise LintError(
                    f"{side.key}: the window of A{'>' if sign == 'pos' else '<'}0 becomes [{low:g}, {high:g}]"
                )
        return Bounds(
            pos=SignBounds(w_min=values["pos_min"], w_max=values["pos_max"]),
            neg=SignBounds(w_min=values["neg_min"], w_max=values["neg_max"]),
        )

    @property
    def objective(self) -> str:
        """The published objective that has this kind of window: a weight held at its bounds, or PPO's clip."""
        return "cispo" if self.caps else "grpo"

    @property
    def rule(self) -> WeightRule:
        """The same as a weight rule."""
        pos, neg = self.bounds.pos, self.bounds.neg
        base: Base = "s" if self.sequence else "r"
        if self.caps:
            return WeightRule(
                pos=SignRule(base=base, cap_low=pos.w_min, cap_high=_or_none(pos.w_max)),
                neg=SignRule(base=base, cap_low=neg.w_min, cap_high=_or_none(neg.w_max)),
            )
        return WeightRule(
            pos=SignRule(base=base, drop_above=_or_none(pos.w_max)),
            neg=SignRule(base=base, drop_below=neg.w_min, drop_above=_or_none(neg.w_max)),
        )


def _or_none(high: float) -> float | None:
    return None if math.isinf(high) else high


@cache
def frameworks() -> Mapping[str, Mapping[str, Any]]:
    """The table as it stands in the file."""
    with open(Path(__file__).with_name("framework_windows.toml"), "rb") as file:
        return tomllib.load(file)


def effective(framework: str, settings: Mapping[str, object], *, loss: str | None = None) -> Effective:
    """What these settings make; keys by their full path or their last part. `loss`: of the table, instead of the
    settings' own. Raises LintError: another framework, a loss that is not in the table, a number that is none.
    """
    facts = frameworks().get(framework)
    if facts is None:
        raise LintError(f"no framework {framework!r} in the table: want one of {', '.join(frameworks())}")
    given = {_last(key): value for key, value in settings.items()}
    selected = {key: _word(given.get(key, default)) for key, default in facts["select"].items()}
    name = loss or _loss(framework, facts, selected)
    rule = facts["loss"][name]
    notes = facts.get("notes", {})
    return Effective(
        framework=framework, version=facts["version"], loss=name, selected=selected, caps=rule["side"] == "cap",
        sides={side: _bound(rule.get(side), given, side) for side in SIDES}, note=notes.get(name, ""),
        sequence=selected.get("importance_sampling_level") == "sequence",
    )  # fmt: skip


def known_keys(framework: str) -> set[str]:
    """Settings that the table knows of a framework, by their last part."""
    facts = frameworks()[framework]
    knobs = [rule[side] for rule in facts["loss"].values() for side in SIDES if isinstance(rule.get(side), dict)]
    return set(facts["select"]) | {key for knob in knobs for key in knob["keys"]}


def write(framework: str, key: str, value: object) -> str:
    """A setting as the framework wants it written.

    >>> write("slime", "eps_clip_high", 100)
    '--eps-clip-high 100'
    """
    facts = frameworks()[framework]
    form = facts.get("write", {}).get(key, facts["as"])
    shown = key.replace("_", "-") if facts.get("dashes") else key
    return str(form.format(key=shown, value=f"{value:g}" if isinstance(value, float) else value))


def flattened(record: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Settings inside each other, by their path.

    >>> flattened({"actor": {"clip_ratio": 0.2}})
    {'actor.clip_ratio': 0.2}
    """
    found: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _loss(framework: str, facts: Mapping[str, Any], selected: Mapping[str, str]) -> str:
    first = next(iter(selected.values()))
    for name, rule in facts["loss"].items():
        if first in rule["when"]:
            return str(name)
    known = [word for rule in facts["loss"].values() for word in rule["when"]]
    near = get_close_matches(first, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise LintError(
        f"{framework}: {next(iter(selected))}={first} is not in the table, whose losses are {', '.join(known)}{hint}"
    )


def _bound(knob: Any, given: Mapping[str, object], side: str) -> Bound:
    if knob is None:
        return Bound(value=_NO_BOUND[side], key="", given=None, form="absolute")
    key = next((key for key in knob["keys"] if given.get(key) not in (None, "", "null", "None")), None)
    told = None if key is None else _number(key, given[key])
    number = told if told is not None else knob.get("default")
    if number is None:
        return Bound(value=_NO_BOUND[side], key=knob["keys"][0], given=None, form=knob["form"])
    value = {"absolute": number, "one_minus": 1 - number, "one_plus": 1 + number}[knob["form"]]
    value = round(value, 12)
    if side.endswith("min"):
        value = max(0.0, value)  # a ratio is never below 0: an offset above 1 is no lower bound
    return Bound(value=value, key=key or knob["keys"][0], given=told, form=knob["form"])


def _number(key: str, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise LintError(f"{key}={value}: want a number") from None
    if math.isnan(number):
        raise LintError(f"{key}={value}: want a number")
    return number


def _last(key: str) -> str:
    return key.lstrip("-").rpartition(".")[2].replace("-", "_")


def _word(value: object) -> str:
    return str(value).strip("'\"").lower()
