"""Texts and token arrays of one rollout, from its Parquet file: `rollout_tokens(run_dir, row)`.

The index only says where they lie. The file may have gone since (`prune`, a copied index), or be another one of the
same name: both are said, nothing is shown that does not belong to the row. The texts are what a model wrote: never
render them as markup.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from regimescope.monitor.errors import RolloutError
from regimescope.monitor.rollout_parquet import LISTS, TEXTS, check_columns, opened
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


def rollout_tokens(run_dir: str | os.PathLike[str], row: RolloutRow) -> RolloutTokens:
    """Read them. Raises RolloutError: the file is gone, broken, outside the run folder, or no longer holds this row."""
    with opened(Path(run_dir), row.file) as parquet:
        check_columns(parquet, row.file, ("sample_id", "length", *TEXTS, *LISTS))
        values = _row(parquet, row.row_in_file)
    if values is None or (values["sample_id"], values["length"]) != (row.sample_id, row.length):
        raise RolloutError(f"{row.file} is no longer the file that was read: row {row.row_in_file} is another one")
    arrays: dict[str, Any] = {name: None if values[name] is None else tuple(values[name]) for name in LISTS}
    lengths = {name: len(array) for name, array in arrays.items() if array is not None}
    if len(set(lengths.values())) > 1:
        raise RolloutError(f"{row.file}, row {row.row_in_file}: arrays of different lengths, {lengths}")
    if any(position is not None and position >= len(BUCKETS) for position in arrays["bucket"] or ()):
        raise RolloutError(f"{row.file}, row {row.row_in_file}: a bucket beyond the {len(BUCKETS)} that there are")
    return RolloutTokens(prompt=values["prompt"], response=values["response"], **arrays)


def _row(parquet: pq.ParquetFile, at: int) -> dict[str, Any] | None:
    wanted = ["sample_id", "length", *TEXTS, *LISTS]
    for group in range(parquet.metadata.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        if at < rows:
            part = parquet.read_row_group(group, columns=wanted, use_threads=False)
            row: dict[str, Any] = part.slice(at, 1).to_pylist()[0]
            return row
        at -= rows
    return None
