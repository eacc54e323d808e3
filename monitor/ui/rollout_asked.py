"""What the address of the Rollouts page asks for: filters, order, and the rollout that is open. Pure; what makes no
sense is as if it were not there.

    asked({"verdict": "wrong", "steps": "10-40"}, facets).filter
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from regimescope.monitor.query import RolloutFacets, RolloutFilter, RolloutSort

VERDICTS = {"correct": "correct", "wrong": "wrong", "none": "no verdict"}
SIGNS: Mapping[str, Literal[-1, 0, 1]] = {"pos": 1, "neg": -1, "zero": 0}
SIGN_WORDS = {"pos": "A > 0", "neg": "A < 0", "zero": "A = 0"}
PICKS = ("worst", "best", "random")
SORTS: Mapping[str, tuple[RolloutSort, str]] = {
    "new": ("-step", "newest first"),
    "old": ("step", "oldest first"),
    "low": ("reward", "lowest reward"),
    "high": ("-reward", "highest reward"),
    "repetition": ("-repetition", "most repetition"),
    "long": ("-length", "longest"),
    "short": ("length", "shortest"),
}
NAMES = ("steps", "env", "verdict", "sign", "end", "pick", "len", "rep", "clipped", "text", "sort")
"Parameters that filter or sort."
LONGEST_TEXT = 200
"Characters of a text that is searched for."


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The filters, each as its widget has it; None or "" = any."""

    steps: tuple[int, int]
    env: str | None
    verdict: str | None
    sign: str | None
    end: str | None
    pick: str | None
    lengths: tuple[int, int]
    repetition: float
    clipped: bool
    text: str
    sort: str

    @property
    def filter(self) -> RolloutFilter:
        """What the index can answer of it."""
        return RolloutFilter(
            steps=self.steps,
            env=self.env,
            correct={"correct": True, "wrong": False}.get(self.verdict or ""),
            judged=False if self.verdict == "none" else None,
            sign=SIGNS.get(self.sign or ""),
            pick=self.pick,
            finish_reason=self.end,
            min_length=self.lengths[0] or None,
            max_length=self.lengths[1],
            min_repetition=self.repetition or None,
        )

    @property
    def order(self) -> RolloutSort:
        """Of the table."""
        return SORTS[self.sort][0]

    @property
    def looks_into_files(self) -> bool:
        """Whether the index alone cannot answer it."""
        return bool(self.text) or self.clipped


def asked(params: Mapping[str, str], facets: RolloutFacets) -> Asked:
    """The filters of an address. A step without a rollout (`step=` without `id=`) is a filter."""
    first, last = (facets.steps[0], facets.steps[-1]) if facets.steps else (0, 0)
    steps = params.get("steps", "")
    if not steps and "id" not in params and "step" in params:
        steps = f"{params['step']}-{params['step']}"
    return Asked(
        steps=parse_range(steps, first, last),
        env=_among(params.get("env"), facets.envs),
        verdict=_among(params.get("verdict"), VERDICTS),
        sign=_among(params.get("sign"), SIGNS),
        end=_among(params.get("end"), facets.finish_reasons),
        pick=_among(params.get("pick"), PICKS),
        lengths=parse_range(params.get("len", ""), 0, facets.longest),
        repetition=_share(params.get("rep", "")),
        clipped=params.get("clipped") == "1",
        text=params.get("text", "")[:LONGEST_TEXT],
        sort=_among(params.get("sort"), SORTS) or "new",
    )


def parse_range(text: str, low: int, high: int) -> tuple[int, int]:
    """ "10-40" within low and high; anything else, and a range that holds none of them, is all of it."""
    first, dash, last = text.partition("-")
    if not dash or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in (first, last)):
        return low, high
    start, end = max(low, int(first)), min(high, int(last))
    return (start, end) if start <= end else (low, high)


def parse_number(text: str | None) -> int | None:
    """A number of an address, from 0 on."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None


def _among(text: str | None, known: Mapping[str, object] | tuple[str, ...]) -> str | None:
    return text if text in known else None


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        return 0.0
    return round(share, 2) if 0 <= share <= 1 else 0.0
