"""The lines that carry numbers (scalars, step, buckets, ratio_hist, hist) -> rows of the index.

Each method takes one decoded line of a trainer's segment, adds its rows to the batch, or raises WireError or
BoundsError before it added any.
"""

from __future__ import annotations

from collections.abc import Mapping

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.catalog import MAX_SLICES, Catalog, Run, Segment, json_text
from regimescope.monitor.errors import WireError
from regimescope.monitor.fields import (
    MAX_COUNT,
    Record,
    dense,
    numbers,
    object_of,
    per_bucket,
    text_of,
    time_of,
    update_of,
    whole,
    wholes,
)
from regimescope.monitor.rows import Batch, Row
from regimescope.monitor.wire import number, plain

_MAX_NAME = 200
_COUNTS = ("tokens", "clip_high", "clip_low", "clamped")
_SUMS = ("ratio_sum", "weight_sum", "abs_adv_weight_sum", "signed_adv_weight_sum")
_MORE_SUMS = ("logp_sum", "log_ratio_sum", "log_ratio_sq_sum")
_POSITIVE = frozenset({"R1", "R2", "pos_eq1"})
_NEGATIVE = frozenset({"R3", "R4", "neg_eq1"})


class Measures:
    """The numbers of one segment."""

    def __init__(self, catalog: Catalog, run: Run, segment: Segment, batch: Batch) -> None:
        self.catalog, self.run, self.segment, self.batch = catalog, run, segment, batch

    def place(self, record: Record) -> tuple[int, int, int, int]:
        """run_key, launch_no, rank, step."""
        step = whole(record.get("s"), "s")
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
        found = self.catalog.slice(self.run, (text_of(kind, "sl"), text_of(value, "sl")), self.batch)
        if found is None and not self.run.slices_full:
            self.run.slices_full = True
            self.note("slices_dropped", {"kept": MAX_SLICES, "first_dropped": f"{kind}={value}"})
        return found

    def scalars(self, record: Record) -> None:
        """Numbers of a step, an update or a slice."""
        place, update, time = self.place(record), update_of(record), time_of(record)
        values = []
        for name, value in object_of(record.get("m", {}), "m").items():
            if not 0 < len(name) <= _MAX_NAME:
                raise WireError(f"metric name of {len(name)} characters")
            mean, weight = (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else (value, 1)
            values.append((name, number(mean), number(weight)))
        slice_id = self._slice(record)
        if slice_id is None:
            return
        for name, value, weight in values:
            metric_id = self.catalog.metric(name, self.batch)
            self.batch.add("scalar", (*place, update, slice_id, time, metric_id, value, weight))

    def step(self, record: Record) -> None:
        """A step is through: its numbers, and the row that says so."""
        self.scalars(record)
        if record.get("sl") is None:
            self.batch.add("step_done", (*self.place(record), time_of(record), whole(record.get("q"), "q")))

    def buckets(self, record: Record) -> None:
        """The seven buckets of an update."""
        assert self.segment.header is not None
        names = self.segment.header.buckets
        place, update, time = self.place(record), update_of(record) or 0, time_of(record)
        revision = whole(record.get("rev", 0), "rev")
        bounds = Bounds.from_wire(object_of(record.get("bounds"), "bounds"))
        counts = {c: wholes(per_bucket(record, c, len(names)), c) for c in _COUNTS}
        sums = {c: numbers(per_bucket(record, c, len(names)), c) for c in (*_SUMS, *_MORE_SUMS)}
        effect, sampled = self._effect(record, len(names))
        entropy = self._entropy(record, len(names))
        slice_id = self._slice(record)
        if slice_id is None:
            return
        for i, bucket in enumerate(names):
            side = bounds.pos if bucket in _POSITIVE else bounds.neg if bucket in _NEGATIVE else None
            limits: Row = (None, None) if side is None else (side.w_min, side.w_max)
            head: Row = (*place, update, slice_id, time, bucket, revision, *limits)
            first = [counts[c][i] for c in _COUNTS] + [sums[c][i] for c in _SUMS]
            last = [sums[c][i] for c in _MORE_SUMS]
            self.batch.add("bucket_step", (*head, *first, effect[i], sampled[i], entropy[i], *last))

    @staticmethod
    def _entropy(record: Record, size: int) -> list[float | None]:
        """Not every trainer has the logits at hand."""
        if "entropy_sum" not in record:
            return [None] * size
        return list(numbers(per_bucket(record, "entropy_sum", size), "entropy_sum"))

    @staticmethod
    def _effect(record: Record, size: int) -> tuple[list[float | None], list[int | None]]:
        if "entropy_effect_sum" not in record:
            return [None] * size, [None] * size
        values = numbers(per_bucket(record, "entropy_effect_sum", size), "entropy_effect_sum")
        sampled = wholes(per_bucket(record, "entropy_effect_tokens", size), "entropy_effect_tokens")
        return list(values), list(sampled)

    def ratio_hist(self, record: Record) -> None:
        """The histogram over log r, a row per sign."""
        place, update = self.place(record), update_of(record)
        edges_id, bins = self._edges(record)
        rows: list[Row] = []
        for key, sign in (("pos", 1), ("neg", -1)):
            side = record.get(key)
            if side is None:
                continue
            columns = object_of(side, key)
            index = wholes(columns.get("i"), "i", bins - 1)
            counts = dense(wholes(columns.get("n"), "n", MAX_COUNT), index, bins, 0)
            sums = [dense(numbers(columns.get(c), c), index, bins, 0.0) for c in ("r", "a")]
            if "ra" in columns:
                sums.append(dense(numbers(columns["ra"], "ra"), index, bins, 0.0))
            rows.append((sign, edges_id, counts, *sums, *([] if "ra" in columns else [None])))
        slice_id = self._slice(record)
        if slice_id is not None:
            self.batch.extend("ratio_hist", [(*place, update, slice_id, *row) for row in rows])

    def hist(self, record: Record) -> None:
        """Any other histogram."""
        place, update, name = self.place(record), update_of(record), text_of(record.get("name"), "name")
        edges_id, bins = self._edges(record)
        index = wholes(record.get("i"), "i", bins - 1)
        counts = dense(wholes(record.get("n"), "n", MAX_COUNT), index, bins, 0)
        slice_id = self._slice(record)
        if slice_id is not None:
            self.batch.add("hist", (*place, update, slice_id, self.catalog.metric(name, self.batch), edges_id, counts))

    def _edges(self, record: Record) -> tuple[int, int]:
        assert self.segment.header is not None
        name = text_of(record.get("edges"), "edges")
        if name not in self.segment.header.edges:
            raise WireError(f"edges {name!r} are not in the header")
        return self.segment.header.edges[name]

    def note(self, kind: str, data: Mapping[str, object]) -> None:
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
