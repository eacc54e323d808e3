"""One line of a segment -> rows of the index and moves of the catalog. `LineReader.read(line)` handles the lines of one file in order.

A bad line (no JSON, a value of the wrong type or range) is counted and skipped as a whole; nothing of it reaches the batch, for a line is parsed to
the end before its rows are added. A kind that this version does not know is kept whole, as the event `wire:<kind>`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.catalog import MAX_SLICES, Catalog, Header, Launch, Run, Segment, json_text
from regimescope.monitor.control import Ack, Command
from regimescope.monitor.errors import BoundsError, ControlError, WireError, WireVersionError
from regimescope.monitor.rows import Batch, Row
from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.wire import decode, number, plain

MARKS = frozenset({"acknowledge", "snooze", "false_alarm", "confirmed", "reopen", "note"})
MONITOR_KINDS = frozenset({"command", "mark", "event", "end"})
TRAINER_KINDS = frozenset({"scalars", "step", "buckets", "ratio_hist", "hist", "event", "ack", "end"})
STATES = frozenset({"running", "waiting_rollouts", "paused", "evaluating", "checkpointing"})

_MAX_STEP = (1 << 62) - 1
_MAX_SMALL = 65_535
_MAX_TIME = 32_503_680_000.0  # the year 3000: a clock beyond it is no clock
_MAX_NAME = 200
_MAX_BINS = 10_000
_COUNTS = ("tokens", "clip_high", "clip_low", "clamped")
_SUMS = ("ratio_sum", "weight_sum", "abs_adv_weight_sum", "signed_adv_weight_sum")
_MORE_SUMS = ("entropy_sum", "logp_sum", "log_ratio_sum", "log_ratio_sq_sum")
_POSITIVE = frozenset({"R1", "R2", "pos_eq1"})
_NEGATIVE = frozenset({"R3", "R4", "neg_eq1"})

Record = Mapping[str, object]
T = TypeVar("T")


class LineReader:
    """The lines of one segment, in order."""

    def __init__(self, catalog: Catalog, run: Run, segment: Segment, batch: Batch) -> None:
        self.catalog, self.run, self.segment, self.batch = catalog, run, segment, batch
        self._kinds: dict[str, Callable[[Record], None]] = {
            "scalars": self._scalars, "step": self._step, "buckets": self._buckets, "ratio_hist": self._ratio_hist, "hist": self._hist,
            "event": self._event, "ack": self._ack, "end": self._end, "command": self._command, "mark": self._mark,
        }  # fmt: skip

    def read(self, line: bytes) -> None:
        """Take one line; never raises for what it says."""
        segment = self.segment
        if segment.refused is not None:
            return
        try:
            record = decode(line)
            sequence = _whole(record.get("q"), "q")
            self._take(record)
        except WireVersionError as error:
            segment.refused = str(error)
            self._note("segment_refused", {"file": segment.name, "reason": str(error)})
            return
        except (WireError, ControlError, BoundsError):
            segment.bad_lines += 1
            if segment.last_seq is not None:
                segment.last_seq += 1  # it took up a number, or the hole would count as a loss as well
            return
        if segment.last_seq is not None and sequence > segment.last_seq + 1:
            segment.lost += sequence - segment.last_seq - 1
        segment.last_seq = max(sequence, segment.last_seq or 0)

    def recall(self, line: bytes) -> None:
        """The header of a file that an earlier process began to read."""
        record = decode(line)
        self.segment.header = self._header_names(record)

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
        role = _text(record.get("role"), "role")
        if role == "monitor":
            self.segment.header = Header()
            return
        names = self._header_names(record)
        launch, rank = self._launch(record), _whole(record.get("rank", 0), "rank", _MAX_SMALL)
        run = self.run
        known = run.launches.get(launch.launch_id)
        if known is None:
            self.catalog.add_launch(run, launch)
        elif launch.ranks > known.ranks:
            known.ranks = launch.ranks
            self.catalog.touch_launch(run, known)
        self.segment.header = names
        self.segment.launch_no, self.segment.rank = (known or launch).launch_no, rank
        run.run_id, run.name = str(record.get("run") or run.path), _optional_text(record.get("name"))
        run.wire_version = max(run.wire_version or 0, cast(int, record["v"]))
        if known is None:
            run.status, run.ended_at = "running", None
            run.started_at = run.started_at or launch.started_at
        self._alive(record)

    def _header_names(self, record: Record) -> Header:
        if record.get("k") != "header":
            raise WireError("the first line is no header")
        if record.get("role") == "monitor":
            return Header()
        buckets = record.get("buckets", list(BUCKETS))
        if not isinstance(buckets, list) or not set(buckets) <= set(BUCKETS) or len(set(buckets)) != len(buckets):
            raise WireError(f"buckets {buckets!r}: want names out of {', '.join(BUCKETS)}")
        edges = {}
        for name, values in _object(record.get("edges", {}), "edges").items():
            numbers = tuple(number(x) for x in _list(values, "edges"))
            if len(numbers) > _MAX_BINS or any(not a < b for a, b in zip(numbers, numbers[1:], strict=False)):
                raise WireError(f"edges {name!r} do not ascend, or there are more than {_MAX_BINS}")
            edges[name] = (self.catalog.edge_set(name, numbers, self.batch), len(numbers) + 1)
        return Header(buckets=tuple(buckets), edges=edges)

    def _launch(self, record: Record) -> Launch:
        source = record.get("ratio_source")
        if source not in (None, "behaviour", "proximal", "infer"):
            raise WireError(f"ratio_source {source!r}")
        effect = _object(record.get("effect") or {}, "effect")
        return Launch(
            launch_no=len(self.run.launches),
            launch_id=_text(record.get("launch"), "launch"),
            started_by=_optional_text(record.get("start")),
            started_at=_time(record),
            first_step=_whole(record.get("first_step", 0), "first_step"),
            ranks=max(1, _whole(record.get("ranks", 1), "ranks", _MAX_SMALL)),
            framework=_optional_text(record.get("framework")),
            objective=_optional_text(record.get("objective")),
            config=_json(record.get("config")),
            ratio_source=cast("str | None", source),
            eq_tol=None if record.get("eq_tol") is None else number(record["eq_tol"]),
            weight_rule=_checked_json(record.get("rule"), WeightRule.from_wire),
            effect_every=None if effect.get("every") is None else _whole(effect["every"], "effect.every", _MAX_SMALL),
            limits=_checked_json(record.get("limits"), Limits.from_wire),
            start_revision=_whole(record.get("revision", 0), "revision"),
            start_bounds=_checked_json(record.get("bounds"), Bounds.from_wire),
            capabilities=[_text(x, "can") for x in _list(record.get("can", []), "can")],
            last_row_at=_time(record),
        )

    def _alive(self, record: Record) -> None:
        """The heartbeat, by the trainer's clock; lines of a monitor are none."""
        launch, time = self._launch_of(), _time(record)
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
        return None if wanted is None else next((x for x in self.run.launches.values() if x.launch_no == wanted), None)

    # -- numbers

    def _place(self, record: Record) -> tuple[int, int, int, int]:
        """run_key, launch_no, rank, step."""
        step = _whole(record.get("s"), "s")
        assert self.segment.launch_no is not None and self.segment.rank is not None
        return (self.run.run_key, self.segment.launch_no, self.segment.rank, step)

    def _slice(self, record: Record) -> int | None:
        """The slice of a line: 0 without one; None when there are too many already."""
        pair = record.get("sl")
        if pair is None:
            return 0
        if not isinstance(pair, dict) or len(pair) != 1:
            raise WireError(f"slice {pair!r}: want one pair, kind and value")
        ((kind, value),) = pair.items()
        found = self.catalog.slice(self.run, (_text(kind, "sl"), _text(value, "sl")), self.batch)
        if found is None and not self.run.slices_full:
            self.run.slices_full = True
            self._note("slices_dropped", {"kept": MAX_SLICES, "first_dropped": f"{kind}={value}"})
        return found

    def _scalars(self, record: Record) -> None:
        place, update, time = self._place(record), _update(record), _time(record)
        values = []
        for name, value in _object(record.get("m", {}), "m").items():
            if not 0 < len(name) <= _MAX_NAME:
                raise WireError(f"metric name of {len(name)} characters")
            mean, weight = (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (value, 1)
            values.append((name, number(mean), number(weight)))
        slice_id = self._slice(record)
        if slice_id is None:
            return
        for name, value, weight in values:
            self.batch.add(
                "scalar", (*place, update, slice_id, time, self.catalog.metric(name, self.batch), value, weight)
            )

    def _step(self, record: Record) -> None:
        self._scalars(record)
        if record.get("sl") is None:
            self.batch.add("step_done", (*self._place(record), _time(record), _whole(record.get("q"), "q")))

    def _buckets(self, record: Record) -> None:
        assert self.segment.header is not None
        names = self.segment.header.buckets
        place, update, time = self._place(record), _update(record) or 0, _time(record)
        revision, bounds = (
            _whole(record.get("rev", 0), "rev"),
            Bounds.from_wire(_object(record.get("bounds"), "bounds")),
        )
        counts = {c: [_whole(x, c) for x in _seven(record, c, len(names))] for c in _COUNTS}
        sums = {c: [number(x) for x in _seven(record, c, len(names))] for c in (*_SUMS, *_MORE_SUMS)}
        effect, sampled = self._effect(record, len(names))
        slice_id = self._slice(record)
        if slice_id is None:
            return
        for i, bucket in enumerate(names):
            side = bounds.pos if bucket in _POSITIVE else bounds.neg if bucket in _NEGATIVE else None
            limits: Row = (None, None) if side is None else (side.w_min, side.w_max)
            head: Row = (*place, update, slice_id, time, bucket, revision, *limits)
            self.batch.add(
                "bucket_step",
                (
                    *head,
                    *(counts[c][i] for c in _COUNTS),
                    *(sums[c][i] for c in _SUMS),
                    effect[i],
                    sampled[i],
                    *(sums[c][i] for c in _MORE_SUMS),
                ),
            )

    @staticmethod
    def _effect(record: Record, size: int) -> tuple[list[float | None], list[int | None]]:
        if "entropy_effect_sum" not in record:
            return [None] * size, [None] * size
        values = [number(x) for x in _seven(record, "entropy_effect_sum", size)]
        return list(values), [_whole(x, "entropy_effect_tokens") for x in _seven(record, "entropy_effect_tokens", size)]

    def _ratio_hist(self, record: Record) -> None:
        place, update = self._place(record), _update(record)
        edges_id, bins = self._edges(record)
        rows: list[Row] = []
        for key, sign in (("pos", 1), ("neg", -1)):
            side = record.get(key)
            if side is None:
                continue
            columns = _object(side, key)
            index = _list(columns.get("i"), "i")
            counts = _dense([_whole(x, "n") for x in _list(columns.get("n"), "n")], index, bins, 0)
            sums = [_dense([number(x) for x in _list(columns.get(c), c)], index, bins, 0.0) for c in ("r", "a")]
            more = (
                _dense([number(x) for x in _list(columns["ra"], "ra")], index, bins, 0.0) if "ra" in columns else None
            )
            rows.append((sign, edges_id, counts, *sums, more))
        slice_id = self._slice(record)
        if slice_id is not None:
            self.batch.extend("ratio_hist", [(*place, update, slice_id, *row) for row in rows])

    def _hist(self, record: Record) -> None:
        place, update, name = self._place(record), _update(record), _text(record.get("name"), "name")
        edges_id, bins = self._edges(record)
        counts = _dense([_whole(x, "n") for x in _list(record.get("n"), "n")], _list(record.get("i"), "i"), bins, 0)
        slice_id = self._slice(record)
        if slice_id is not None:
            self.batch.add("hist", (*place, update, slice_id, self.catalog.metric(name, self.batch), edges_id, counts))

    def _edges(self, record: Record) -> tuple[int, int]:
        assert self.segment.header is not None
        name = _text(record.get("edges"), "edges")
        if name not in self.segment.header.edges:
            raise WireError(f"edges {name!r} are not in the header")
        return self.segment.header.edges[name]

    # -- events, control, people

    def _event(self, record: Record) -> None:
        kind = _text(record.get("kind"), "kind")
        data = _object(record.get("data") or {}, "data")
        if kind == "state" and not self._state(record, data):
            return
        self._add_event(record, kind, data)

    def _state(self, record: Record, data: Record) -> bool:
        """Move the state of the launch; False for a repeated one, which is a heartbeat only."""
        launch, state = self._launch_of(), _text(data.get("state"), "state")
        if state not in STATES:
            raise WireError(f"state {state!r}: want one of {', '.join(sorted(STATES))}")
        if launch is None or launch.state == state:
            return False
        if self.segment.rank != 0 and launch.ranks > 1:
            return False  # rank 0 speaks for all
        launch.state, launch.state_since = state, _time(record)
        self.catalog.touch_launch(self.run, launch)
        return True

    def _add_event(self, record: Record, kind: str, payload: Record) -> None:
        step = None if record.get("s") is None else _whole(record["s"], "s")
        launch_no = self.segment.launch_no
        if launch_no is None:  # a monitor speaks of a launch by its id
            named = self.run.launches.get(str(payload.get("launch")))
            launch_no = named.launch_no if named else None
        sequence = _whole(record.get("q"), "q")
        row = (
            self.run.run_key,
            launch_no,
            self.segment.rank,
            sequence,
            _time(record),
            step,
            kind,
            json_text(plain(payload)),
        )
        self.batch.add("event", row)

    def _note(self, kind: str, data: Mapping[str, object]) -> None:
        """An event of the ingester itself."""
        self.batch.add(
            "event",
            (
                self.run.run_key,
                self.segment.launch_no,
                self.segment.rank,
                None,
                None,
                None,
                kind,
                json_text(plain(data)),
            ),
        )

    def _ack(self, record: Record) -> None:
        ack = Ack.from_wire(record)
        applied = None if ack.applied is None else json_text(plain(ack.applied.to_wire()))
        step = None if record.get("s") is None else _whole(record["s"], "s")
        revision = None if record.get("rev") is None else _whole(record["rev"], "rev")
        self.batch.add(
            "ack",
            (
                self.run.run_key,
                _uuid(ack.id),
                self.segment.launch_no,
                self.segment.rank,
                _time(record),
                step,
                ack.status,
                revision,
                applied,
                ack.message,
            ),
        )

    def _end(self, record: Record) -> None:
        launch, reason = self._launch_of(), _text(record.get("reason"), "reason")
        self.segment.closed = True
        if launch is None:
            return
        if self.segment.rank == 0 or reason == "error" or launch.ranks == 1:
            launch.ended_at, launch.end_reason = _time(record), reason
            self.catalog.touch_launch(self.run, launch)
            if launch is self.run.newest and reason != "rollback":
                self.run.status, self.run.ended_at = "ended", launch.ended_at
                self.catalog.touch_run(self.run)

    def _command(self, record: Record) -> None:
        c = Command.from_wire(record)
        if not (math.isfinite(c.not_after) and abs(c.not_after) < _MAX_TIME):
            raise WireError(f"not_after {c.not_after}")
        expect = None if c.expect is None else _whole(c.expect, "expect")
        times = (_time(record) or 0.0, c.not_after)
        alert = None if c.alert is None else _uuid(c.alert)
        self.batch.add(
            "command",
            (
                self.run.run_key,
                _uuid(c.id),
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
        kind = _text(record.get("kind"), "kind")
        if kind not in MARKS:
            raise WireError(f"mark of kind {kind!r}")
        alert = None if record.get("alert") is None else _uuid(record["alert"])
        step = None if record.get("s") is None else _whole(record["s"], "s")
        until = None if record.get("until") is None else _whole(record["until"], "until")
        signature, text = _optional_text(record.get("signature")), _optional_text(record.get("text"))
        row = (
            _uuid(record.get("id")),
            _time(record) or 0.0,
            _optional_text(record.get("by")),
            kind,
            alert,
            signature,
            step,
            until,
            text,
        )
        self.batch.add("mark", (self.run.run_key, *row))


def _whole(value: object, name: str, most: int = _MAX_STEP) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise WireError(f"{name} = {value!r} is no whole number of 0 to {most}")
    return value


def _update(record: Record) -> int | None:
    return None if record.get("u") is None else _whole(record["u"], "u", _MAX_SMALL)


def _time(record: Record) -> float | None:
    value = record.get("t")
    return float(value) if isinstance(value, int | float) and 0 <= value < _MAX_TIME else None


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise WireError(f"{name} = {value!r} is no text")
    return value


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise WireError(f"{name} is no list")
    return value


def _object(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise WireError(f"{name} is no object")
    return value


def _seven(record: Record, column: str, size: int) -> list[object]:
    """An array with an element per bucket; a column that an older recorder does not write is zeros."""
    values = _list(record.get(column, [0] * size if column == "clamped" else None), column)
    if len(values) != size:
        raise WireError(f"{column} has {len(values)} elements for {size} buckets")
    return values


def _dense(values: list[T], index: list[object], bins: int, zero: T) -> list[T]:
    """A sparse column as one value per bin."""
    if len(values) != len(index):
        raise WireError(f"{len(index)} bins with {len(values)} values")
    dense = [zero] * bins
    for position, value in zip(index, values, strict=True):
        dense[_whole(position, "i", bins - 1)] = value
    return dense


def _json(value: object) -> str | None:
    return None if value is None else json_text(plain(value))


def _checked_json(value: object, read: Callable[[Mapping[str, object]], object]) -> str | None:
    """The JSON of a part of the header that `read` accepts. Raises BoundsError."""
    if value is None:
        return None
    read(_object(value, "header"))
    return _json(value)


def _uuid(value: object) -> str:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise WireError(f"{value!r} is no UUID") from None
