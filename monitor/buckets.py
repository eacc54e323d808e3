"""The seven buckets of a run, per step or per gradient update, with every number that is derived from their sums. The
formulas are those of the views `v_bucket_step` and `v_bucket`; `query.py` is the public door.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from regimescope.monitor.series import ALL_STEPS, Connection, Steps, span


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """One bucket of a step or update, ranks added. None = not measured, or nothing to divide by."""

    step: int
    update: int | None
    "None = all updates of the step added."
    bucket: str
    revision: int
    "Of the bounds."
    w_min: float | None
    w_max: float | None
    "Bounds in force for its sign; None for zero_adv."
    eps_low: float | None
    eps_high: float | None
    "1 - w_min, w_max - 1."
    tokens: int
    token_frac: float | None
    "Of the seven."
    clip_high_frac: float | None
    clip_low_frac: float | None
    "Of its tokens: weight differs from the base because of that side."
    clamped: int
    "Tokens whose |log r| was cut to 20."
    ratio_mean: float | None
    weight_mean: float | None
    clip_gap: float | None
    "Mean of r - w."
    grad_mass: float | None
    "Sum of w|A|, of the seven."
    entropy_mean: float | None
    "Nats."
    entropy_effect: float | None
    "First-order effect on the entropy, scaled up from the sampled tokens."
    logp_mean: float | None
    log_ratio_mean: float | None
    log_ratio_sq_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSums:
    """What a bucket of a step adds up to, updates and ranks added, under one pair of bounds."""

    step: int
    bucket: str
    w_min: float | None
    w_max: float | None
    "Bounds in force for its sign; None for zero_adv."
    tokens: int
    abs_adv_weight_sum: float
    "Sum of w|A|."
    entropy_effect_tokens: int | None
    "Tokens on which the entropy effect was measured; None = not measured."


_COLUMNS = [f.name for f in fields(BucketRow)]
_AS = {"step": "step::BIGINT", "bucket": "bucket::VARCHAR", "revision": "revision::BIGINT"}


def buckets(
    con: Connection, run_key: int, *, steps: Steps = ALL_STEPS, slice_id: int = 0, per_update: bool = False
) -> list[BucketRow]:
    """By step, update and bucket; the seven of one update always come together."""
    view, update = ("v_bucket", "update") if per_update else ("v_bucket_step", "NULL")
    wanted = ", ".join(update if name == "update" else _AS.get(name, name) for name in _COLUMNS)
    rows = con.execute(
        f"""SELECT {wanted} FROM {view} AS b WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ?
            ORDER BY step, {"update, " if per_update else ""}b.bucket""",
        [run_key, slice_id, *span(steps)],
    ).fetchall()
    return [BucketRow(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def bucket_sums(con: Connection, run_key: int, *, steps: Steps = ALL_STEPS, slice_id: int = 0) -> list[BucketSums]:
    """By step and bucket; one row more where the bounds moved between the updates of a step."""
    rows = con.execute(
        """SELECT step::BIGINT, bucket::VARCHAR, w_min, w_max, sum(tokens)::BIGINT, sum(abs_adv_weight_sum),
                  sum(entropy_effect_tokens)::BIGINT
           FROM bucket_step AS b JOIN launch USING (run_key, launch_no)
           WHERE run_key = ? AND slice_id = ? AND step BETWEEN ? AND ?
             AND (superseded_from IS NULL OR step < superseded_from)
           GROUP BY step, b.bucket, w_min, w_max ORDER BY step, b.bucket""",
        [run_key, slice_id, *span(steps)],
    ).fetchall()
    names = [f.name for f in fields(BucketSums)]
    return [BucketSums(**dict(zip(names, row, strict=True))) for row in rows]
