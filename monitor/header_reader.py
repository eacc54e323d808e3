"""The header line of a segment, read: the launch that it declares or joins, the names that later lines refer to."""

from __future__ import annotations

from itertools import pairwise

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.catalog import Catalog, Header, Launch, Run, Segment
from regimescope.monitor.errors import WireError
from regimescope.monitor.fields import (
    MAX_SMALL,
    Record,
    checked_json,
    json_of,
    list_of,
    object_of,
    optional_text,
    text_of,
    time_of,
    whole,
)
from regimescope.monitor.rows import Batch
from regimescope.monitor.segments import order_of, series_of
from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.wire import number

_MAX_BINS = 10_000


class Misordered(Exception):
    """A file of an older start came after a newer one had been read: the run must be read again, in order. `name`: of
    the file.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def read_names(record: Record, catalog: Catalog, batch: Batch) -> Header:
    """What later lines of the file refer to. Raises WireError."""
    if record.get("k") != "header":
        raise WireError("the first line is no header")
    if record.get("role") == "monitor":
        return Header()
    buckets = record.get("buckets", list(BUCKETS))
    if not isinstance(buckets, list) or not set(buckets) <= set(BUCKETS) or len(set(buckets)) != len(buckets):
        raise WireError(f"buckets {buckets!r}: want names out of {', '.join(BUCKETS)}")
    edges = {}
    for name, values in object_of(record.get("edges", {}), "edges").items():
        numbers = tuple(number(x) for x in list_of(values, "edges"))
        if len(numbers) > _MAX_BINS or any(not a < b for a, b in pairwise(numbers)):
            raise WireError(f"edges {name!r} do not ascend, or there are more than {_MAX_BINS}")
        edges[name] = (catalog.edge_set(name, numbers, batch), len(numbers) + 1)
    return Header(buckets=tuple(buckets), edges=edges)


def read_launch(record: Record, launch_no: int) -> Launch:
    """The launch that a trainer's header declares. Raises WireError, BoundsError."""
    source = record.get("ratio_source")
    if source not in (None, "behaviour", "proximal", "infer"):
        raise WireError(f"ratio_source {source!r}")
    effect = object_of(record.get("effect") or {}, "effect")
    return Launch(
        launch_no=launch_no,
        launch_id=text_of(record.get("launch"), "launch"),
        started_by=optional_text(record.get("start")),
        started_at=time_of(record),
        first_step=whole(record.get("first_step", 0), "first_step"),
        ranks=max(1, whole(record.get("ranks", 1), "ranks", MAX_SMALL)),
        framework=optional_text(record.get("framework")),
        objective=optional_text(record.get("objective")),
        config=json_of(record.get("config")),
        ratio_source=source,
        eq_tol=None if record.get("eq_tol") is None else number(record["eq_tol"]),
        weight_rule=checked_json(record.get("rule"), WeightRule.from_wire),
        effect_every=None if effect.get("every") is None else whole(effect["every"], "effect.every", MAX_SMALL),
        limits=checked_json(record.get("limits"), Limits.from_wire),
        start_revision=whole(record.get("revision", 0), "revision"),
        start_bounds=checked_json(record.get("bounds"), Bounds.from_wire),
        capabilities=[text_of(x, "can") for x in list_of(record.get("can", []), "can")],
        last_row_at=time_of(record),
    )


def launch_of(
    run: Run, segment: Segment, launch_id: str, rank: int, *, in_order: bool
) -> tuple[Launch | None, str | None]:
    """The launch that this file belongs to (None = it begins a new one), and the first file of that rank under the same
    id, where there is one of another start. A rank that writes a second series of files under one launch id is a second
    start, or a second process: it gets a launch of its own, which supersedes, so that nothing counts twice and nothing
    is thrown away. `in_order`: take it as it comes. Raises Misordered.
    """
    name = segment.name
    others = [s for s in run.segments.values() if s.launch_no is not None and s.name != name]
    known = run.named(launch_id)
    numbers = {launch.launch_no: launch for launch in known}
    for other in others:
        if other.launch_no in numbers and series_of(other.name) == series_of(name):
            return numbers[other.launch_no], None  # an earlier part
    same = [s for s in others if s.launch_no in numbers and s.rank == rank]
    starts = len({series_of(s.name) for s in same})
    newer = same if starts < len(known) else others
    if not in_order and any(order_of(s.name) > order_of(name) for s in newer):
        raise Misordered(name)
    first = min((s.name for s in same), key=order_of, default=None)
    return (known[starts] if starts < len(known) else None), first
