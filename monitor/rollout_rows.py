"""Rollouts as the index knows them: rows by step, task, verdict or length, and the group of one. The SQL of it;
`query.py` is the public door, `rollout_reader.py` has the texts and tokens of a row.

Rows that a later launch superseded are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from regimescope.monitor.series import ALL_STEPS, Connection, Steps, span

Sort = Literal[
    "step", "-step", "reward", "-reward", "advantage", "-advantage", "length", "-length", "repetition", "-repetition"
]
_SORTED_BY = ("step", "reward", "advantage", "length", "repetition")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """One response without its texts and tokens; None = not known."""

    launch_no: int
    rank: int
    step: int
    file: str
    "Parquet file, relative to the run folder."
    row_in_file: int
    sample_id: int
    "Of its step and rank."
    group_id: int | None
    "Responses of a step with one number answer one prompt."
    env: str | None
    reward: float | None
    advantage: float | None
    correct: bool | None
    "The verifier's verdict; may disagree with the advantage's sign."
    length: int
    "Tokens."
    finish_reason: str | None
    "eos | length | aborted | infra"
    repetition: float | None
    update: int | None
    "Gradient update of the step at which logp_new, weight and bucket were taken."
    revision: int | None
    "Of the bounds, when it was generated."
    weight_version: int | None
    lag: int | None
    "Weight versions between generation and training."
    pick: str | None
    "worst | best | random: why it was kept."


_COLUMNS = ", ".join("step::BIGINT" if f.name == "step" else f'"{f.name}"' for f in fields(RolloutRow))


def rollouts(
    con: Connection,
    run_key: int,
    *,
    steps: Steps = ALL_STEPS,
    env: str | None = None,
    correct: bool | None = None,
    pick: str | None = None,
    finish_reason: str | None = None,
    min_length: int | None = None,
    sort: Sort = "-step",
    limit: int = 200,
) -> list[RolloutRow]:
    """Rows that fulfil every condition given; None = no condition.

    `sort`: with "-" the largest first; what is not known comes last, NaN counts as the largest. Raises ValueError for
    another `sort` or a negative limit.
    """
    column = sort.removeprefix("-")
    if column not in _SORTED_BY or limit < 0:
        raise ValueError(f"sort={sort!r}, limit={limit}: want one of {', '.join(_SORTED_BY)}, and at least 0")
    wanted = {"env": env, "correct": correct, "pick": pick, "finish_reason": finish_reason}
    given = {name: value for name, value in wanted.items() if value is not None}
    conditions = "".join(f" AND {name} = ?" for name in given)
    values: list[object] = list(given.values())
    if min_length is not None:
        conditions += " AND length >= ?"
        values.append(min_length)
    order = f"{column} {'DESC' if sort.startswith('-') else 'ASC'} NULLS LAST"
    return _rows(
        con,
        f"""SELECT {_COLUMNS} FROM v_rollout WHERE run_key = ? AND step BETWEEN ? AND ?{conditions}
            ORDER BY {order}, step DESC, launch_no, rank, row_in_file LIMIT ?""",
        [run_key, *span(steps), *values, limit],
    )


def rollout_group(con: Connection, run_key: int, row: RolloutRow) -> list[RolloutRow]:
    """The rows that were kept of the same prompt in the same step, of all ranks, the best first; the row alone where it
    has no group.
    """
    if row.group_id is None:
        return [row]
    return _rows(
        con,
        f"""SELECT {_COLUMNS} FROM v_rollout WHERE run_key = ? AND launch_no = ? AND step = ? AND group_id = ?
            ORDER BY reward DESC NULLS LAST, rank, row_in_file""",
        [run_key, row.launch_no, row.step, row.group_id],
    )


def _rows(con: Connection, sql: str, values: Sequence[object]) -> list[RolloutRow]:
    names = [f.name for f in fields(RolloutRow)]
    return [RolloutRow(**dict(zip(names, row, strict=True))) for row in con.execute(sql, list(values)).fetchall()]
