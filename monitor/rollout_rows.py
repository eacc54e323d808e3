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


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFilter:
    """Conditions that a row has to fulfil, all of them; None = no condition."""

    steps: Steps = ALL_STEPS
    env: str | None = None
    correct: bool | None = None
    judged: bool | None = None
    "Whether there is a verdict."
    sign: Literal[-1, 0, 1] | None = None
    "Of the advantage."
    pick: str | None = None
    finish_reason: str | None = None
    min_length: int | None = None
    "Tokens, inclusive; so is max_length."
    max_length: int | None = None
    min_repetition: float | None = None
    "Inclusive."
    rank: int | None = None
    sample_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacets:
    """What the filters of a run can choose from."""

    count: int
    "Rows."
    steps: tuple[int, ...]
    "Steps that have rows, ascending."
    envs: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    longest: int
    "Tokens; 0 without rows."


_EQUAL = ("env", "correct", "pick", "finish_reason", "rank", "sample_id")
_AT_LEAST = {"min_length": "length >= ?", "max_length": "length <= ?", "min_repetition": "repetition >= ?"}


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
    """Rows that fulfil every condition given; None = no condition. As `rollouts_where`, for the usual conditions."""
    wanted = RolloutFilter(
        steps=steps, env=env, correct=correct, pick=pick, finish_reason=finish_reason, min_length=min_length
    )
    return rollouts_where(con, run_key, wanted, sort=sort, limit=limit)


def rollouts_where(
    con: Connection, run_key: int, wanted: RolloutFilter, *, sort: Sort = "-step", limit: int = 200
) -> list[RolloutRow]:
    """The rows of a filter.

    `sort`: with "-" the largest first; what is not known comes last, NaN counts as the largest. Raises ValueError for
    another `sort` or a negative limit.
    """
    column = sort.removeprefix("-")
    if column not in _SORTED_BY or limit < 0:
        raise ValueError(f"sort={sort!r}, limit={limit}: want one of {', '.join(_SORTED_BY)}, and at least 0")
    conditions, values = _conditions(wanted)
    order = f"{column} {'DESC' if sort.startswith('-') else 'ASC'} NULLS LAST"
    return _rows(
        con,
        f"""SELECT {_COLUMNS} FROM v_rollout WHERE run_key = ?{conditions}
            ORDER BY {order}, step DESC, launch_no, rank, row_in_file LIMIT ?""",
        [run_key, *values, limit],
    )


def rollout_count(con: Connection, run_key: int, wanted: RolloutFilter) -> int:
    """Number of rows of a filter."""
    conditions, values = _conditions(wanted)
    sql = f"SELECT count(*) FROM v_rollout WHERE run_key = ?{conditions}"
    return int(con.execute(sql, [run_key, *values]).fetchall()[0][0])


def rollout_facets(con: Connection, run_key: int) -> RolloutFacets:
    """Of all rows of the run."""
    (count, steps, envs, reasons, longest) = con.execute(
        """SELECT count(*), list_sort(list(DISTINCT step::BIGINT)), list_sort(list(DISTINCT env)),
                  list_sort(list(DISTINCT finish_reason)), max(length) FROM v_rollout WHERE run_key = ?""",
        [run_key],
    ).fetchall()[0]
    return RolloutFacets(
        count=count,
        steps=tuple(steps or ()),
        envs=tuple(env for env in envs or () if env is not None),
        finish_reasons=tuple(reason for reason in reasons or () if reason is not None),
        longest=longest or 0,
    )


def _conditions(wanted: RolloutFilter) -> tuple[str, list[object]]:
    """As SQL behind WHERE, and its values."""
    parts: list[str] = [" AND step BETWEEN ? AND ?"]
    values: list[object] = [*span(wanted.steps)]
    for name in _EQUAL:
        if (value := getattr(wanted, name)) is not None:
            parts.append(f" AND {name} = ?")
            values.append(value)
    for name, condition in _AT_LEAST.items():
        if (value := getattr(wanted, name)) is not None:
            parts.append(f" AND {condition}")
            values.append(value)
    if wanted.judged is not None:
        parts.append(f" AND correct IS {'NOT ' if wanted.judged else ''}NULL")
    if wanted.sign is not None:
        parts.append(" AND NOT isnan(advantage) AND sign(advantage) = ?")
        values.append(wanted.sign)
    return "".join(parts), values


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
