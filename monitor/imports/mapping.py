"""Rows of a log under our names: `Mapper(framework="verl").map(row)`.

A key is taken without `train/` and looked up in the table of aliases; what stands under `eval/`, `eval_` or `test/`
becomes `eval.NAME`; a name of ours is itself. Keys of an environment become slices `env`; `all` is the whole, and so
is the only environment of a log. An unknown key keeps its own name. The user's own map comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import aliases
from regimescope.monitor.imports.rows import LogRow

WHOLE = "all"
_HELD_OUT = re.compile(r"(?:eval|test)/|eval_")
_VALIDATION = re.compile(r"(?:eval|test|val|val-core|val-aux|validation)/|eval_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a canonical metric comes from."""

    key: str
    transform: str
    trust: str
    "exact | proxy | user"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What becomes of a key."""

    name: str
    env: str | None
    source: Source | None
    "None = no canonical name."
    order: int


class Mapper:
    """The keys of one log. Holds what was found, to be told at the end."""

    def __init__(self, *, framework: str | None, user: Mapping[str, str] | None = None) -> None:
        """framework: of the table, None = none is known; user: source key -> name. Raises ImportFailed."""
        if framework is not None and framework not in aliases.frameworks():
            known = ", ".join(aliases.frameworks())
            raise ImportFailed(f"no framework {framework!r} in the table of keys: want one of {known}")
        self.framework = framework
        self.user = dict(user or {})
        self.sources: dict[str, dict[str, Source]] = {}
        "Canonical name -> source key -> source."
        self.unmapped: set[str] = set()
        "Keys that are kept under their own name."
        self._places: dict[str, _Place] = {}
        self._before: dict[tuple[str, str | None], float] = {}
        self._envs: set[str] = set()

    def restart(self) -> None:
        """Another launch: what accumulates begins anew."""
        self._before = {}

    def map(self, values: Mapping[str, float]) -> dict[str | None, dict[str, float]]:
        """Environment (None = the whole) -> our name -> number."""
        found: dict[tuple[str | None, str], tuple[int, float]] = {}
        for key, value in values.items():
            place = self._places.get(key) or self._place(key)
            number = self._value(place, value)
            where = (place.env, place.name)
            if number is not None and (where not in found or place.order < found[where][0]):
                found[where] = (place.order, number)
        rows: dict[str | None, dict[str, float]] = {}
        for (env, name), (_, number) in found.items():
            rows.setdefault(env, {})[name] = number
        if len(self._envs) == 1:  # one environment is the whole, but for what the log says of the whole itself
            (only,) = self._envs
            rows[None] = {**rows.get(only, {}), **rows.get(None, {})}
        return rows

    def _value(self, place: _Place, value: float) -> float | None:
        transform = place.source.transform if place.source else ""
        if transform == "diff":
            where = (place.name, place.env)
            before = self._before.get(where)
            self._before[where] = value
            return None if before is None else value - before
        return 1 - value if transform == "1-x" else 1 - value / 100 if transform == "1-x/100" else value

    def _place(self, key: str) -> _Place:
        place = self._find(key)
        self._places[key] = place
        if place.env is not None:
            self._envs.add(place.env)
        if place.source is None:
            self.unmapped.add(key)
        else:
            self.sources.setdefault(place.name, {})[key] = place.source
        return place

    def _find(self, key: str) -> _Place:
        if key in self.user:
            return _Place(name=self.user[key], env=None, source=Source(key=key, transform="", trust="user"), order=-1)
        bare = key.removeprefix("train/")
        for candidate in dict.fromkeys((key, bare)):
            if (found := aliases.find(candidate, self.framework)) is not None:
                return _placed(key, *found)
        held_out = _HELD_OUT.match(bare)
        if held_out is not None:
            rest = bare[held_out.end() :]
            if (found := aliases.find(rest, self.framework)) is not None:
                return _placed(key, *found, prefix="eval.")
            name, known = f"eval.{rest}", aliases.is_canonical(rest)
        else:
            name, known = (bare if aliases.is_canonical(bare) else key), aliases.is_canonical(bare)
        return _Place(
            name=name, env=None, source=Source(key=key, transform="", trust="exact") if known else None, order=0
        )


def _placed(key: str, alias: aliases.Alias, env: str | None, prefix: str = "") -> _Place:
    source = Source(key=key, transform=alias.transform, trust=alias.trust)
    name = alias.canonical if alias.canonical.startswith(prefix) else prefix + alias.canonical
    return _Place(name=name, env=None if env == WHOLE else env, source=source, order=alias.order)


def is_evaluation(row: LogRow) -> bool:
    """Whether all that the row says is of an evaluation."""
    return all(_VALIDATION.match(key.removeprefix("train/")) for key in row.values)


def parse_map(pairs: Iterable[str]) -> dict[str, str]:
    """`--map SOURCE=NAME`, the last equals sign counts. Raises ImportFailed.

    >>> parse_map(["critic/score/mean=accuracy"])
    {'critic/score/mean': 'accuracy'}
    """
    found = {}
    for pair in pairs:
        source, equals, name = pair.rpartition("=")
        if not (equals and source and name):
            raise ImportFailed(f"--map {pair}: want SOURCE=NAME, say --map critic/score/mean=accuracy")
        if aliases.is_canonical(source) and not aliases.is_canonical(name):
            raise ImportFailed(f"--map {pair}: the log's key comes first: --map {name}={source}")
        found[source] = name
    return found
