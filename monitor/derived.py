"""The derived numbers of a bucket in Python, by the very formulas of the view `v_bucket_step_all`: they are read out of
schema.sql, so there is one place that has them.

    derive("clip_high_frac", {"clip_high": 3, "tokens": 12, ...}, {"tokens": 40, ...})     # 0.25

The view costs DuckDB many milliseconds of planning, whatever it reads; the plain sums of a few steps cost one.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from regimescope.monitor.store import SCHEMA

Sums = Mapping[str, float | None]
"Column of bucket_step -> its sum; None = nothing measured."
Formula = Callable[[Sums, Sums], float | None]

VIEW = "v_bucket_step_all"
_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def derive(column: str, sums: Sums, whole: Sums) -> float | None:
    """This column of the view. `sums`: of the bucket. `whole`: of all seven together. None as NULL in SQL."""
    return FORMULAS[column](sums, whole)


def _formulas() -> dict[str, Formula]:
    body = SCHEMA.partition(f"CREATE VIEW {VIEW} AS")[2].partition("FROM")[0]
    lines = [line.partition("--")[0] for line in body.splitlines()]
    pairs = re.findall(r"(?:^|,)\s*((?:sum|\(sum)\(.*?) AS (\w+)", " ".join(lines))
    return {name: _compiled(_as_python(sql)) for sql, name in pairs}


def _as_python(sql: str) -> str:
    """A sum over the window of all buckets becomes whole(column); the rest is Python as it stands."""
    return re.sub(r"sum\(sum\((\w+)\)\) OVER t", r"whole(\1)", sql).replace("::BIGINT", "").strip()


def _compiled(text: str) -> Formula:
    return _node(ast.parse(text, mode="eval").body)


def _node(node: ast.expr) -> Formula:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        constant = node.value
        return lambda sums, whole: constant
    if isinstance(node, ast.BinOp):
        return _operation(_OPERATORS[type(node.op)], _node(node.left), _node(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "nullif":
            return _nullif(*map(_node, node.args))
        name = node.args[0]
        if node.func.id in ("sum", "whole") and isinstance(name, ast.Name):
            return _column(name.id, of_all=node.func.id == "whole")
    raise ValueError(f"schema.sql: {VIEW} has a formula that derived.py cannot read: {ast.unparse(node)}")


def _operation(apply: Callable[[float, float], float], left: Formula, right: Formula) -> Formula:
    def value(sums: Sums, whole: Sums) -> float | None:
        a, b = left(sums, whole), right(sums, whole)
        return None if a is None or b is None else apply(a, b)

    return value


def _nullif(wanted: Formula, unwanted: Formula) -> Formula:
    def value(sums: Sums, whole: Sums) -> float | None:
        found = wanted(sums, whole)
        return None if found == unwanted(sums, whole) else found

    return value


def _column(name: str, *, of_all: bool) -> Formula:
    if of_all:
        return lambda sums, whole: whole[name]
    return lambda sums, whole: sums[name]


FORMULAS = _formulas()
"Column of the view -> its formula."
MASS = "abs_adv_weight_sum"
