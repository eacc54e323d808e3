"""One line of a segment -> rows of the index and moves of the catalog. `LineReader.read(line)` handles the lines of one
file in order.

A bad line (no JSON, a value of the wrong type or range) is counted and skipped as a whole; nothing of it reaches the
batch, for a line is parsed to the end before its rows are added. The first ones of a file, and the first holes in its
numbers, are events as well: `bad_line` and `lost` say where. A kind that this version does not know is kept whole, as
the event `wire:<kind>`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import cast

from regimescope.monitor.catalog import Catalog, Header, Launch, Run, Segment, json_text
from regimescope.monitor.control import Ack, Command
from regimescope.monitor.errors import BoundsError, ControlError, WireError, WireVersionError
from regimescope.monitor.fields import (
    MAX_SMALL,
    MAX_TIME,
    Record,
    list_of,
    object_of,
    optional_text,
    text_of,
    time_of,
    uuid_of,
    whole,
)
from regimescope.monitor.header_reader import launch_of, read_launch, read_names
from regimescope.monitor.measures import Measures
from regimescope.monitor.rollout_index import add_rollouts
from regimescope.monitor.rows import Batch
from regimescope.monitor.wire import decode, plain

MARKS = frozenset({"acknowledge", "snooze", "false_alarm", "confirmed", "reopen", "note"})
MONITOR_KINDS = frozenset({"command", "mark", "event", "end"})
TRAINER_KINDS = frozenset({"scalars", "step", "buckets", "ratio_hist", "hist", "rollouts", "event", "ack", "end"})
STATES = frozenset({"running", "waiting_rollouts", "paused", "evaluating", "checkpointing"})
MAX_LOCATED = 10
"Bad lines, and holes, of a file that get an event each: a file of garbage must not fill the index."
_SHOWN = 80


class LineReader:
    """The lines of one segment, in order."""

    def __init__(
        self,
        catalog: Catalog,
        run: Run,
        segment: Segment,
        batch: Batch,
        folder: Path | None = None,
        in_order: bool = False,
    ) -> None:
        """`folder`: of the run, where its rollouts lie; None = they are left out. `in_order`: take its header as it
        comes, for the run was read again on its account already.
        """
        self.catalog, self.run, self.segment, self.batch = catalog, run, segment, batch
        self._folder = folder
        self._in_order = in_order
        self._measures = measures = Measures(catalog, run, segment, batch)
        self._kinds: dict[str, Callable[[Record], None]] = {
            "scalars": measures.scalars,
            "step": measures.step,
            "buckets": measures.buckets,
            "ratio_hist": measures.ratio_hist,
            "hist": measures.hist,
            "rollouts": self._rollouts,
            "event": self._event,
            "ack": self._ack,
            "end": self._end,
            "command": self._command,
            "mark": self._mark,
        }

    def read(self, line: bytes, at: int) -> None:
        """Take one line; never raises for what it says. `at`: its offset in the file. Raises Misordered."""
        segment = self.segment
        if segment.refused is not None:
            return
        try:
            record = decode(line)
            if b"\\u" in line:
                json_text(plain(record)).encode()  # a lone surrogate has no UTF-8 form, and no place in the index
            sequence = whole(record.get("q"), "q")
            self._take(record)
        except WireVersionError as error:
            segment.refused = str(error)
            self._measures.note("segment_refused", {"file": segment.name, "offset": at, "reason": str(error)})
            return
        except UnicodeEncodeError:
            self.skip(line, at, "half of a surrogate pair, which is no text")
            return
        except RecursionError:
            self.skip(line, at, "nested too deeply")
            return
        except (WireError, ControlError, BoundsError) as error:
            self.skip(line, at, str(error))
            return
        self._count(record, sequence, at)

    def skip(self, line: bytes, at: int, reason: str) -> None:
        """Count a line that cannot be read. `line`: all of it, or its beginning."""
        segment = self.segment
        if segment.refused is not None:
            return
        if segment.bad_lines < MAX_LOCATED:
            where = {"file": segment.name, "offset": at, "reason": _shown(reason.encode()), "text": _shown(line)}
            self._measures.note("bad_line", where)
        segment.bad_lines += 1
        segment.bad_tail += 1

    def _count(self, record: Record, sequence: int, at: int) -> None:
        """Holes in the numbers are losses, unless bad lines took those numbers up. The header of a later part repeats
        the last number.
        """
        segment = self.segment
        announced = record["k"] == "event" and record.get("kind") == "dropped"
        if announced:
            segment.dropped += _dropped(record)
        if segment.last_seq is not None:
            first = segment.last_seq + 1
            hole = max(0, sequence - first + (record["k"] == "header") - segment.bad_tail)
            if hole and not announced:
                if segment.holes < MAX_LOCATED:
                    span = {"from": first, "to": sequence - (record["k"] != "header"), "records": hole}
                    self._measures.note("lost", {"file": segment.name, "offset": at, **span})
                segment.holes += 1
            segment.lost += hole
        segment.bad_tail = 0
        segment.last_seq = max(sequence, segment.last_seq or 0)

    def recall(self, line: bytes) -> None:
        """The header of a file that an earlier process began to read."""
        record = decode(line)
        if record.get("role") == "monitor" or self.segment.launch_no is not None:  # else it was a bad one
            self.segment.header = read_names(record, self.catalog, self.batch)

    # -- headers

    def _take(self, record: Record) -> None:
        kind = str(record["k"])
        if kind == "header":
            self._header(record)
            return
        if self.segment.header is None:
            raise WireError("a line before the header")
        self._alive(record)
        handler = self._kinds.get(kind)
        allowed = MONITOR_KINDS if self.segment.rank is None else TRAINER_KINDS
        if handler is None or kind not in allowed:
            self._add_event(record, f"wire:{kind}", record)
        else:
            handler(record)

    def _header(self, record: Record) -> None:
        role = text_of(record.get("role"), "role")
        if role == "monitor":
            self.segment.header = Header()
            return
        names = read_names(record, self.catalog, self.batch)
        declared, rank = read_launch(record, len(self.run.launches)), whole(record.get("rank", 0), "rank", MAX_SMALL)
        run = self.run
        launch, before = launch_of(run, self.segment, declared.launch_id, rank, in_order=self._in_order)
        if before is not None:
            files = [before, self.segment.name]
            self._measures.note("duplicate_rank", {"launch": declared.launch_id, "rank": rank, "files": files})
        lead = None if launch is None else run.lead(launch)
        if launch is None:
            launch = declared
            self.catalog.add_launch(run, launch)
            run.status, run.ended_at = "running", None
        elif lead is not None and rank < lead:
            self.catalog.redeclare(run, launch, declared)
        if declared.ranks > launch.ranks:
            launch.ranks = declared.ranks
            self.catalog.touch_launch(run, launch)
        self.segment.header = names
        self.segment.launch_no, self.segment.rank = launch.launch_no, rank
        if launch is run.newest and (lead is None or rank <= lead):
            run.run_id, run.name = str(record.get("run") or run.path), optional_text(record.get("name"))
        run.wire_version = max(run.wire_version or 0, cast(int, record["v"]))
        if record.get("imported") is not None:
            imported = object_of(record["imported"], "imported")
            run.imported_from = text_of(imported.get("format"), "imported.format")
            if not imported.get("following"):
                run.status = "imported"
        run.started_at = run.launches[0].started_at
        self._alive(record)

    def _alive(self, record: Record) -> None:
        """The heartbeat, by the trainer's clock; lines of a monitor are none."""
        launch, time = self._launch_of(), time_of(record)
        if launch is None or time is None:
            return
        if launch.last_row_at is None or time > launch.last_row_at:
            launch.last_row_at = time
            self.catalog.touch_launch(self.run, launch)
        if self.run.last_row_at is None or time > self.run.last_row_at:
            self.run.last_row_at = time
            self.catalog.touch_run(self.run)

    def _launch_of(self) -> Launch | None:
        wanted = self.segment.launch_no
        return None if wanted is None else self.run.launches[wanted]

    def _rollouts(self, record: Record) -> None:
        place = self._measures.place(record)
        if self._folder is not None:
            add_rollouts(record, place, self._folder, self.batch)

    # -- events, control, people

    def _event(self, record: Record) -> None:
        kind = text_of(record.get("kind"), "kind")
        data = object_of(record.get("data") or {}, "data")
        if kind == "state" and not self._state(record, data):
            return
        if kind == "metric_sources":
            self._sources(data)
        self._add_event(record, kind, data)

    def _sources(self, data: Record) -> None:
        """Which key of a foreign log fed which name."""
        for item in list_of(data.get("mapped"), "mapped"):
            told = object_of(item, "mapped")
            name, key = text_of(told.get("name"), "name"), text_of(told.get("key"), "key")
            how = (optional_text(told.get("transform")), optional_text(told.get("trust")))
            metric_id = self.catalog.metric(name, self.batch)
            self.batch.add("metric_source", (self.run.run_key, metric_id, key, *how))

    def _state(self, record: Record, data: Record) -> bool:
        """Move the state of the launch; False for a repeated one, which is a heartbeat only."""
        launch, state = self._launch_of(), text_of(data.get("state"), "state")
        if state not in STATES:
            raise WireError(f"state {state!r}: want one of {', '.join(sorted(STATES))}")
        if launch is None or launch.state == state:
            return False
        if self.segment.rank != 0 and launch.ranks > 1:
            return False  # rank 0 speaks for all
        launch.state, launch.state_since = state, time_of(record)
        self.catalog.touch_launch(self.run, launch)
        return True

    def _add_event(self, record: Record, kind: str, payload: Record) -> None:
        step = None if record.get("s") is None else whole(record["s"], "s")
        launch_no = self.segment.launch_no
        if launch_no is None:  # a monitor speaks of a launch by its id
            named = self.run.named(str(payload.get("launch")))
            launch_no = named[0].launch_no if named else None
        sequence = whole(record.get("q"), "q")
        row = (
            self.run.run_key,
            launch_no,
            self.segment.rank,
            sequence,
            time_of(record),
            step,
            kind,
            json_text(plain(payload)),
        )
        self.batch.add("event", row)

    def _ack(self, record: Record) -> None:
        ack = Ack.from_wire(record)
        applied = None if ack.applied is None else json_text(plain(ack.applied.to_wire()))
        step = None if record.get("s") is None else whole(record["s"], "s")
        revision = None if record.get("rev") is None else whole(record["rev"], "rev")
        self.batch.add(
            "ack",
            (
                self.run.run_key,
                uuid_of(ack.id),
                self.segment.launch_no,
                self.segment.rank,
                time_of(record),
                step,
                ack.status,
                revision,
                applied,
                ack.message,
            ),
        )

    def _end(self, record: Record) -> None:
        launch, reason = self._launch_of(), text_of(record.get("reason"), "reason")
        self.segment.closed = True
        if launch is None:
            return
        if self.segment.rank == 0 or reason == "error" or launch.ranks == 1:
            failed = launch.end_reason == "error"  # of another rank: it stays, whichever line is read first
            if failed and reason != "error":
                return
            before = launch.ended_at if failed else None
            launch.ended_at, launch.end_reason = max(time_of(record) or 0.0, before or 0.0) or None, reason
            self.catalog.touch_launch(self.run, launch)
            if launch is self.run.newest and reason != "rollback":
                if self.run.status != "imported":
                    self.run.status = "ended"
                self.run.ended_at = launch.ended_at
                self.catalog.touch_run(self.run)

    def _command(self, record: Record) -> None:
        c = Command.from_wire(record)
        if not (math.isfinite(c.not_after) and abs(c.not_after) < MAX_TIME):
            raise WireError(f"not_after {c.not_after}")
        expect = None if c.expect is None else whole(c.expect, "expect")
        times = (time_of(record) or 0.0, c.not_after)
        alert = None if c.alert is None else uuid_of(c.alert)
        self.batch.add(
            "command",
            (
                self.run.run_key,
                uuid_of(c.id),
                c.launch,
                *times,
                c.by,
                c.kind,
                json_text(plain(c.args)),
                expect,
                alert,
                c.why,
            ),
        )

    def _mark(self, record: Record) -> None:
        kind = text_of(record.get("kind"), "kind")
        if kind not in MARKS:
            raise WireError(f"mark of kind {kind!r}")
        alert = None if record.get("alert") is None else uuid_of(record["alert"])
        step = None if record.get("s") is None else whole(record["s"], "s")
        until = None if record.get("until") is None else whole(record["until"], "until")
        signature, text = optional_text(record.get("signature")), optional_text(record.get("text"))
        row = (
            uuid_of(record.get("id")),
            time_of(record) or 0.0,
            optional_text(record.get("by")),
            kind,
            alert,
            signature,
            step,
            until,
            text,
        )
        self.batch.add("mark", (self.run.run_key, *row))


def _dropped(record: Record) -> int:
    """Records that a `dropped` event announces."""
    data = record.get("data")
    records = data.get("records") if isinstance(data, dict) else None
    return records if isinstance(records, int) and not isinstance(records, bool) and records > 0 else 0


def _shown(line: bytes) -> str:
    """The beginning of a line, with whatever is no plain text escaped."""
    text = line[:_SHOWN].decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown + "…" * (len(line) > _SHOWN)
