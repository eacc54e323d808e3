"""`regimescope lint --framework verl CONFIG|key=value...`: the window that a framework makes of its clip settings, what
published failure that courts, and the settings that give DISPO's or CISPO's window there.

A reading of the configuration, no detection. Exit code 1 where a bound courts a published failure, 2 for a mistake.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.errors import LintError
from regimescope.monitor.framework_windows import SIDES, Effective, effective, flattened, frameworks, known_keys, write
from regimescope.monitor.windows import windows

TARGETS = ("dispo", "cispo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What a bound courts."""

    severity: str
    "warning | note"
    side: str
    text: str


def main(argv: list[str]) -> int:
    """Print the reading. Raises LintError."""
    options = _parser().parse_args(argv)
    settings = dict(settings_of(options.settings))
    found = effective(options.framework, settings)
    said = risks(found)
    unknown = sorted(_unknown(options.framework, options.settings))
    if options.json:
        print(json.dumps(as_json(found, said, unknown), indent=2))
    else:
        print("\n".join(as_text(found, said, unknown)))
    return int(any(risk.severity == "warning" for risk in said))


def risks(found: Effective) -> list[Risk]:
    """What these bounds court, the gravest first."""
    facts, bounds = _facts(), found.bounds
    high, low = facts["tight_high"], facts["tight_low"]
    said = []
    if bounds.neg.w_max <= high:
        said.append(_risk(found, "warning", "neg_max", "r3"))
    if bounds.neg.w_min >= low:
        said.append(_risk(found, *(("warning", "neg_min", "r4_cap") if found.caps else ("note", "neg_min", "r4_drop"))))
    if bounds.pos.w_max < 1:
        said.append(_risk(found, "warning", "pos_max", "below_one"))
    elif bounds.pos.w_max <= high:
        said.append(_risk(found, "note", "pos_max", "r1"))
    if found.caps and bounds.pos.w_min == 0 and bounds.pos.w_max > 1:
        said.append(_risk(found, "note", "pos_min", "r2"))
    return sorted(said, key=lambda risk: risk.severity != "warning")


def _risk(found: Effective, severity: str, side: str, text: str) -> Risk:
    held = "held down" if found.caps else "dropped"
    words = _facts()["text"][text].format(bound=f"{found.sides[side].value:g}", held=held)
    return Risk(severity=severity, side=side, text=words)


@cache
def _facts() -> Mapping[str, Any]:
    with open(Path(__file__).with_name("lint.toml"), "rb") as file:
        return tomllib.load(file)


def nearest(framework: str, wanted: Bounds) -> tuple[Effective, list[str], list[str]]:
    """The framework's window nearest to this one, how to write it, and what it cannot express. The negative side goes
    first where one setting serves both signs: there the collapses come from.
    """
    facts = frameworks()[framework]
    loss = "cispo"
    chosen = facts["loss"][loss]["when"][0]
    select = next(iter(facts["select"]))
    values = dict(zip(SIDES, (wanted.pos.w_min, wanted.pos.w_max, wanted.neg.w_min, wanted.neg.w_max), strict=True))
    settings: dict[str, object] = {select: chosen}
    plain = effective(framework, settings)
    for side in ("neg_max", "neg_min", "pos_max", "pos_min"):
        bound = plain.sides[side]
        if bound.key and bound.key not in settings and math.isfinite(values[side]):
            settings[bound.key] = bound.spelt(values[side])
    made = effective(framework, settings)
    missed = [
        f"{_facts()['name'][side]}: {made.sides[side].value:g} instead of {values[side]:g}"
        for side in SIDES
        if not math.isclose(made.sides[side].value, values[side], abs_tol=1e-9)
    ]
    return made, [write(framework, key, value) for key, value in settings.items()], missed


def as_text(found: Effective, said: list[Risk], unknown: list[str]) -> list[str]:
    """For people."""
    bounds = found.bounds
    what = "weights are held at the bound" if found.caps else "a token beyond a bound gets no gradient"
    chosen = ", ".join(f"{key}={value}" for key, value in found.selected.items())
    lines = [f"{found.framework}, {chosen} ({found.version}): {what}"]
    for sign, shown, side in (("pos", "A>0", bounds.pos), ("neg", "A<0", bounds.neg)):
        high = "no upper bound" if math.isinf(side.w_max) else f"{side.w_max:g}"
        lines.append(f"  {shown}: [{side.w_min:g}, {high}]  {_from(found, sign)}")
    if found.sequence:
        lines.append("  the ratio is the whole sequence's, not the token's")
    if found.note:
        lines.append(f"  {found.note}")
    lines += [f"  {risk.severity}: {_facts()['name'][risk.side]}: {risk.text}" for risk in said] or [
        "  courts no published failure"
    ]
    lines += [f"  not understood, so without effect here: {', '.join(unknown)}"] if unknown else []
    published = {window.name: window for window in windows()}
    for name in TARGETS:
        _, settings, missed = nearest(found.framework, published[name].bounds)
        how = f"{published[name].title}'s window" if not missed else f"nearest to {published[name].title}'s window"
        lines.append(f"  {how}: {'  '.join(settings)}")
        lines += [f"    cannot be said there: {what}" for what in missed]
    return lines


def as_json(found: Effective, said: list[Risk], unknown: list[str]) -> dict[str, object]:
    """For machines."""
    published = {window.name: window for window in windows()}
    targets = {}
    for name in TARGETS:
        _, settings, missed = nearest(found.framework, published[name].bounds)
        targets[name] = {"settings": settings, "missed": missed}
    window = {side: None if math.isinf(b.value) else b.value for side, b in found.sides.items()}
    return {
        "framework": found.framework, "version": found.version, "loss": found.loss, "selected": dict(found.selected),
        "side": "cap" if found.caps else "drop", "window": window, "note": found.note,
        "risks": [{"severity": r.severity, "bound": r.side, "text": r.text} for r in said],
        "unknown": unknown, "targets": targets,
    }  # fmt: skip


def _from(found: Effective, sign: str) -> str:
    parts = []
    for side in (f"{sign}_min", f"{sign}_max"):
        bound = found.sides[side]
        if bound.key:
            parts.append(f"{bound.key}{f'={bound.given:g}' if bound.given is not None else ' by default'}")
    return f"({', '.join(dict.fromkeys(parts))})" if parts else "(no setting)"


def settings_of(given: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Of `key=value` words and of configuration files. Raises LintError."""
    for item in given:
        key, equals, value = item.partition("=")
        if equals and not Path(item).exists():
            yield key, value
        else:
            yield from _of_file(Path(item)).items()


def _of_file(path: Path) -> dict[str, object]:
    if not path.is_file():
        raise LintError(f"{path}: neither a file nor key=value")
    text = path.read_text("utf-8", "replace")
    try:
        if path.suffix == ".toml":
            return flattened(tomllib.loads(text))
        if text.lstrip().startswith("{"):
            return flattened(json.loads(text))
    except ValueError as error:
        raise LintError(f"{path} cannot be read: {error}") from None
    return dict(_words(text))


_WORD = re.compile(r"^\s*(?:--|export\s+)?([A-Za-z_][\w.\-]*)\s*(?:[:=]\s*|\s+)([^\s#,\\]+)")
_OVERRIDE = re.compile(r"(?:^|\s)(?:--)?\+*([A-Za-z_][\w.\-]*)(?:=|\s+(?=[-\d.]+(?:\s|$)))([^\s\\,]+)")


def _words(text: str) -> Iterator[tuple[str, object]]:
    """Settings of a YAML file or of a shell script with overrides: all that looks like one."""
    for line in text.splitlines():
        bare = line.split("#", 1)[0]
        if (match := _WORD.match(bare)) is not None:
            yield match.group(1), match.group(2)
        yield from _OVERRIDE.findall(bare)


def _unknown(framework: str, given: list[str]) -> Iterator[str]:
    """Settings typed by hand that the table does not know."""
    known = known_keys(framework)
    for item in given:
        key, equals, _ = item.partition("=")
        last = key.lstrip("-").rpartition(".")[2].replace("-", "_")
        if equals and not Path(item).exists() and last not in known:
            near = get_close_matches(last, known, 1)
            yield f"{key} (did you mean {near[0]}?)" if near else key


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope lint",
        description="The window that a framework makes of its clip settings, and what it courts.",
    )
    parser.add_argument("--framework", required=True, choices=list(frameworks()), help="whose settings they are")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="CONFIG|key=value",
        help="a configuration file (TOML, JSON, YAML, shell), or settings",
    )
    parser.add_argument("--json", action="store_true", help="a JSON object instead of text")
    return parser
