"""What is wrong with the files of a run, in words: two writers, segments refused, lines that could not be read, records
missing. `troubles(con, run_key)` reads the events and counts that the ingester left; pages, `check` and `doctor` show
the same sentences. What a file says is shortened and escaped by then, but still text of somebody: show it as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from regimescope.monitor import query

KINDS = ("duplicate_rank", "second_writer", "segment_refused", "bad_line", "lost")
"Events of the ingester and the Recorder that are told."


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is wrong."""

    kind: str
    "One of KINDS."
    text: str
    advice: str


def troubles(con: query.Connection, run_key: int) -> list[Trouble]:
    """Worst first: what makes numbers wrong, what leaves some out, what is merely counted."""
    events = query.events(con, run_key, KINDS)
    found: dict[str, list[Mapping[str, object]]] = {kind: [] for kind in KINDS}
    for event in events:
        found[event.kind].append(event.data)
    segments = query.segments(con, run_key)
    return [
        *_writers(found["second_writer"], found["duplicate_rank"]),
        *_refused(segments),
        *_losses(segments, found["lost"]),
        *_bad_lines(segments, found["bad_line"]),
    ]


def _writers(second: list[Mapping[str, object]], repeated: list[Mapping[str, object]]) -> Iterator[Trouble]:
    advice = "pass rank= and ranks= to each Recorder, or end the older process; only the one that started last counts"
    for data in second[:1]:
        more = f" (and {len(second) - 1} more)" if len(second) > 1 else ""
        text = f"two processes write as rank {data.get('rank')}: {data.get('other')} and {data.get('file')}{more}"
        yield Trouble(kind="second_writer", text=text, advice=advice)
    for data in repeated[:1]:
        files = data.get("files")
        named = " and ".join(map(str, files)) if isinstance(files, list) else "two files"
        more = f" (and {len(repeated) - 1} more)" if len(repeated) > 1 else ""
        text = f"launch {data.get('launch')!r} has rank {data.get('rank')} twice: {named}{more}"
        advice = "the later counts. A second start: give it its own launch=; a second process: pass rank= and ranks="
        yield Trouble(kind="duplicate_rank", text=text, advice=advice)


def _refused(segments: list[query.SegmentRow]) -> Iterator[Trouble]:
    for s in segments:
        if s.refused:
            text = f"{s.segment}: {s.refused}"
            yield Trouble(kind="segment_refused", text=text, advice="upgrade regimescope here: the trainer's is newer")


def _losses(segments: list[query.SegmentRow], holes: list[Mapping[str, object]]) -> Iterator[Trouble]:
    lost, dropped = sum(s.lost for s in segments), sum(s.dropped for s in segments)
    missing = max(0, lost - dropped)
    if not lost and not dropped:
        return
    parts = [f"{dropped} dropped by the recorder, as it says itself"] * bool(dropped)
    if missing:
        where = ""
        if holes:
            first = holes[0]
            where = f", first numbers {first.get('from')} to {first.get('to')} of {first.get('file')}"
        parts.append(f"{missing} not in the files, and nobody says why{where}")
    advice = "a full queue or a full disk drops records: free space, log less per step; the run itself is unharmed"
    if missing and not dropped:
        advice = "look for an edited or truncated file; what stands in the files counts"
    yield Trouble(kind="lost", text="records missing: " + "; ".join(parts), advice=advice)


def _bad_lines(segments: list[query.SegmentRow], located: list[Mapping[str, object]]) -> Iterator[Trouble]:
    count = sum(s.bad_lines for s in segments)
    if not count:
        return
    names = ", ".join(s.segment for s in segments if s.bad_lines)
    text = f"{count} lines could not be read, in {names}"
    if located:
        first = located[0]
        text += f"; first at byte {first.get('offset')} of {first.get('file')}: {first.get('reason')}"
    advice = "look for a second writer or an edited file; every other line counts"
    yield Trouble(kind="bad_line", text=text, advice=advice)
