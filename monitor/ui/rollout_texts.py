"""Words about rollouts: the id in an address, one line of numbers, the start of a text, what its end means. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from regimescope.monitor.query import RolloutRow
from regimescope.monitor.repeats import Loop
from regimescope.monitor.ui.texts import number, plural

ENDED: Mapping[str, str] = {
    "eos": "ended by itself",
    "length": "cut at the length limit",
    "aborted": "given up",
    "infra": "failed outside the policy",
}
"finish_reason in words."
EXCERPT = 120
"Characters of a text in a list."
_GLYPHS = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥"})


def kept_id(row: RolloutRow) -> str:
    """ "12", or "3-12" of rank 3: its number in the address, unique within a step."""
    return f"{row.rank}-{row.sample_id}" if row.rank else str(row.sample_id)


def parse_id(text: str) -> tuple[int, int] | None:
    """Rank and sample_id of `kept_id`; None: it is none."""
    rank, _, sample = text.rpartition("-")
    if not (sample.isascii() and sample.isdigit() and len(sample) < 19):
        return None
    if rank and not (rank.isascii() and rank.isdigit() and len(rank) < 6):
        return None
    return int(rank or 0), int(sample)


def verdict_word(row: RolloutRow) -> str:
    """ "correct", "wrong" or "no verdict"."""
    return "no verdict" if row.correct is None else "correct" if row.correct else "wrong"


def line(row: RolloutRow) -> str:
    """ "wrong · reward -1 · 49 tokens · repetition 0.44"."""
    bits = [verdict_word(row)]
    if row.reward is not None:
        bits.append(f"reward {number(row.reward)}")
    bits.append(plural(row.length, "token"))
    if row.repetition is not None:
        bits.append(f"repetition {number(row.repetition, 2)}")
    if row.finish_reason in ("length", "aborted", "infra"):
        bits.append(ENDED[row.finish_reason])
    return " · ".join(bits)


def loop_text(loop: Loop) -> str:
    """ "Loop starts at token 12: 7 tokens, 4 rounds, to the end."."""
    end = "to the end" if loop.at_end else f"left again at token {loop.start + loop.covered:,}"
    return (
        f"Loop starts at token {loop.start:,}: {plural(loop.period, 'token')}, {plural(loop.rounds, 'round')}, {end}."
    )


def excerpt(text: str | None, limit: int = EXCERPT) -> str:
    """The start of a text on one line: newlines and tabs as glyphs, other control characters as their escape."""
    if text is None:
        return "no text recorded"
    shown = text[:limit].translate(_GLYPHS)
    plain = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in shown)
    return plain + ("…" if len(text) > limit else "")
