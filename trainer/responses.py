"""Statistics of responses: length, how they end, repetition; on token ids, and on text where there is nothing else.
Torch-free.

`response_metrics(responses)` gives the canonical metric names, means as (mean, weight) and order statistics as plain
numbers, over ALL responses generated. `response_rows(responses)` gives what stands behind them, one number per
response. Lengths count the end token; repetition is looked for in what stands before it. What was not measured is left
out, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regimescope.trainer.answers.verifier import Outcome
from regimescope.trainer.errors import ShapeError
from regimescope.trainer.repetition import longest_run, seq_rep, tail_loops, token_rows
from regimescope.trainer.text_statistics import COMPRESSIBLE, compression_ratios, text_units

Metric = float | tuple[float, float]
"A number, or (mean, weight) where items stand behind it."
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

REPETITIVE = 0.5
"`repetition_frac` counts responses whose seq_rep_4 is above this."
PERCENTILES = (10, 50, 90, 99)
END_UNIT = -1
"Stands for the end token in a response that is known by its text alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One judged response: `Response(token_ids=(8, 16, 8, 1), ended=True, outcome="correct")`."""

    token_ids: Sequence[int]
    "The response without its prompt; the end token is last where `ended`."
    ended: bool
    "Whether it ended by itself within the limit; otherwise it was truncated."
    outcome: Outcome
    "The verifier's word."
    text: str = ""
    "The response as text; empty = not kept."
    logps: NDArray[np.float32] | None = field(default=None, compare=False)
    "[len(token_ids)] log-probability of each sampled token in nats, <= 0; None = not known."
    env: str = ""
    "Task it belongs to; empty = the run has one."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStatistics:
    """One array per measure, [responses] in their order."""

    length: Counts
    "Tokens, the end token included."
    rep4: Floats
    "Share of 4-grams that are repeated, [0, 1)."
    rep20: Floats
    "The same with 20-grams."
    loop_period: Counts
    "Tokens of one round of the loop at the end, 1..256; 0 = none."
    loop_count: Counts
    "Full rounds of that loop; 0 = none."
    loop_start: Counts
    "Index of the first token of that loop; 0 = none."
    loop_share: Floats
    "Share of the tokens before the end token that the loop covers, [0, 1]."
    sure_run: Floats
    "Longest run of sampled tokens with p > 0.99; NaN without log-probabilities."
    compression: Floats
    "Bytes of the last 10,000 characters over their size under zlib; NaN without text."


def text_response(text: str, *, ended: bool, outcome: Outcome, env: str = "") -> Response:
    """A response of which only the text is known. Its tokens are words, or characters (see `text_units`), and its
    lengths count those; where `ended`, one more stands for the end token."""
    units = text_units(text).tolist()
    return Response(token_ids=(*units, END_UNIT) if ended else units, ended=ended, outcome=outcome, text=text, env=env)


def response_rows(responses: Sequence[Response]) -> ResponseStatistics:
    """Every measure of every response. Raises ShapeError where log-probabilities and tokens differ in number."""
    bodies = [response.token_ids[: _body_length(response)] for response in responses]
    rows = token_rows(bodies)
    loops = tail_loops(rows)
    return ResponseStatistics(
        length=np.array([len(response.token_ids) for response in responses], np.int64),
        rep4=seq_rep(rows, 4),
        rep20=seq_rep(rows, 20),
        loop_period=loops.period,
        loop_count=loops.count,
        loop_start=loops.start,
        loop_share=loops.covered / np.maximum(rows.lengths, 1),
        sure_run=_sure_runs(responses),
        compression=compression_ratios([response.text for response in responses]),
    )


def response_metrics(
    responses: Sequence[Response], *, short_tokens: int = 5, sure_run: int = 3000
) -> dict[str, Metric]:
    """Canonical metrics over all responses of a step; a mean over no response is left out. Raises ShapeError.

    `short_tokens`: `short_frac` counts responses with fewer tokens. `sure_run`: `sure_run_frac` counts responses with
    so many sure tokens in a row; the default is where MiniMax-M1 stops a response (arXiv 2506.13585).
    """
    if not responses:
        return {}
    rows = response_rows(responses)
    outcomes = np.array([response.outcome for response in responses])
    ended = np.array([response.ended for response in responses])
    metrics: dict[str, Metric] = {
        "accuracy": _mean(outcomes == "correct"),
        "infra_failed_frac": _mean(outcomes == "infra_failed"),
        "response_length_mean": _mean(rows.length),
        "response_length_min": float(rows.length.min()),
        "response_length_max": float(rows.length.max()),
        "short_frac": _mean(rows.length < short_tokens),
        "aborted_frac": _mean(rows.length == 0),
        "eos_frac": _mean(ended),
        "truncated_frac": _mean(~ended),
    }
    metrics |= length_percentiles(rows.length)
    for outcome in ("correct", "incorrect"):
        if (outcomes == outcome).any():
            metrics[f"response_length_{outcome}_mean"] = _mean(rows.length[outcomes == outcome])
    return metrics | _repetition_metrics(rows, sure_run)


def length_percentiles(lengths: Counts) -> dict[str, Metric]:
    """Order statistics of response lengths, at least one."""
    values = np.percentile(lengths, PERCENTILES)
    return {f"response_length_p{percent}": float(value) for percent, value in zip(PERCENTILES, values, strict=True)}


def _repetition_metrics(rows: ResponseStatistics, sure_run: int) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {
        "rep4_mean": _mean(rows.rep4),
        "rep20_mean": _mean(rows.rep20),
        "repetition_frac": _mean(rows.rep4 > REPETITIVE),
        "tail_loop_frac": _mean(rows.loop_period > 0),
        "tail_loop_share_mean": _mean(rows.loop_share),
    }
    if len(runs := rows.sure_run[~np.isnan(rows.sure_run)]):
        metrics["sure_run_mean"] = _mean(runs)
        metrics["sure_run_frac"] = _mean(runs >= sure_run)
    if len(ratios := rows.compression[~np.isnan(rows.compression)]):
        metrics["compression_mean"] = _mean(ratios)
        metrics["compressible_frac"] = _mean(ratios > COMPRESSIBLE)
    return metrics


def _sure_runs(responses: Sequence[Response]) -> Floats:
    known, places = [], []
    for place, response in enumerate(responses):
        if response.logps is None:
            continue
        if len(response.logps) != len(response.token_ids):
            raise ShapeError(
                f"responses[{place}]: {len(response.logps)} log-probabilities for {len(response.token_ids)} tokens: "
                "give one for each token, the end token included"
            )
        known.append(response.logps[: _body_length(response)])
        places.append(place)
    runs = np.full(len(responses), np.nan)
    runs[places] = longest_run(known)
    return runs


def _body_length(response: Response) -> int:
    """Tokens before the end token."""
    return max(0, len(response.token_ids) - response.ended)


def _mean(values: NDArray[np.generic]) -> tuple[float, float]:
    return float(np.mean(values.astype(float))), float(len(values))
