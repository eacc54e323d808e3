"""The header line of a segment, read: the launch that it declares, the names that later lines refer to."""

from __future__ import annotations

from itertools import pairwise

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.catalog import Catalog, Header, Launch
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
from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.wire import number

_MAX_BINS = 10_000


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
