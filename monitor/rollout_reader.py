"""Texts and token arrays of rollouts, from their Parquet files: `rollout_tokens(run_dir, row)` of one row,
`rollout_contents(run_dir, rows, columns)` of several of one file at the price of one look into it.

The index only says where they lie. The file may have gone since (`prune`, a copied index), or be another one of the
same name: both are said, nothing is shown that does not belong to the row. The texts are what a model wrote: never
render them as markup.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from regimescope.monitor.errors import RolloutError
from regimescope.monitor.rollout_parquet import LISTS, OPTIONAL, TEXTS, check_columns, opened
from regimescope.monitor.rollout_rows import RolloutRow
from regimescope.monitor.token_stats import BUCKETS

Floats = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTokens:
    """What a rollout consists of. None = not recorded; the arrays that are there have one value per token, all the same
    number of them. Values that are not finite are as they were.
    """

    prompt: str | None
    response: str | None
    token_ids: tuple[int | None, ...] | None
    logp_old: Floats | None
    "Nats, of the weights that generated it."
    logp_new: Floats | None
    "Nats, at the row's `update`."
    entropy: Floats | None
    "Nats."
    weight: Floats | None
    "What the weight rule made of the ratio."
    bucket: tuple[int | None, ...] | None
    "Position in the list of buckets that the segment's header gives; our Recorder gives BUCKETS."
    tokens: tuple[str | None, ...] | None = None
    "Text of each token, where the trainer gave it."


def rollout_tokens(run_dir: str | os.PathLike[str], row: RolloutRow) -> RolloutTokens:
    """Read them. Raises RolloutError: the file is gone, broken, outside the run folder, or no longer holds this row."""
    with opened(Path(run_dir), row.file) as parquet:
        columns = _columns(parquet, row.file, (*TEXTS, *LISTS))
        values = _row(parquet, row.row_in_file, columns)
    return _checked(values, row)


def rollout_contents(
    run_dir: str | os.PathLike[str], rows: Sequence[RolloutRow], columns: Sequence[str]
) -> list[RolloutTokens]:
    """What these rows of ONE file hold in these columns, in their order; the others are None. Raises RolloutError."""
    file = rows[0].file
    with opened(Path(run_dir), file) as parquet:
        table = parquet.read(columns=_columns(parquet, file, columns), use_threads=False)
        wanted = [row.row_in_file if row.row_in_file < table.num_rows else None for row in rows]
        found = [None if at is None else table.slice(at, 1).to_pylist()[0] for at in wanted]
    return [_checked(values, row) for values, row in zip(found, rows, strict=True)]


def _columns(parquet: pq.ParquetFile, file: str, columns: Sequence[str]) -> list[str]:
    """Those of them that the file has, with what says whose row it is."""
    wanted = ["sample_id", "length", *columns]
    check_columns(parquet, file, wanted)
    return [name for name in wanted if name not in OPTIONAL or name in parquet.schema_arrow.names]


def _checked(values: dict[str, Any] | None, row: RolloutRow) -> RolloutTokens:
    """The row's values. Raises RolloutError: they are those of another one, or do not fit together."""
    if values is None or (values["sample_id"], values["length"]) != (row.sample_id, row.length):
        raise RolloutError(f"{row.file} is no longer the file that was read: row {row.row_in_file} is another one")
    arrays: dict[str, Any] = {name: None if values.get(name) is None else tuple(values[name]) for name in LISTS}
    lengths = {name: len(array) for name, array in arrays.items() if array is not None}
    if len(set(lengths.values())) > 1:
        raise RolloutError(f"{row.file}, row {row.row_in_file}: arrays of different lengths, {lengths}")
    if any(position is not None and position >= len(BUCKETS) for position in arrays["bucket"] or ()):
        raise RolloutError(f"{row.file}, row {row.row_in_file}: a bucket beyond the {len(BUCKETS)} that there are")
    return RolloutTokens(prompt=values.get("prompt"), response=values.get("response"), **arrays)


def _row(parquet: pq.ParquetFile, at: int, columns: list[str]) -> dict[str, Any] | None:
    for group in range(parquet.metadata.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        if at < rows:
            part = parquet.read_row_group(group, columns=columns, use_threads=False)
            row: dict[str, Any] = part.slice(at, 1).to_pylist()[0]
            return row
        at -= rows
    return None
