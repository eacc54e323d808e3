"""Statistics of responses from their token ids: length, how they end, repetition. Torch-free.

`response_metrics(responses)` gives the canonical metric names, means as (mean, weight) and order statistics as plain
numbers, over ALL responses generated. Lengths count the end token; repetition is looked for in what stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regimescope.trainer.verifier import Outcome

Metric = float | tuple[float, float]
"A number, or (mean, weight) where items stand behind it."

REPETITIVE = 0.5
"`repetition_frac` counts responses whose seq_rep_4 is above this."
LONGEST_PERIOD = 256
SHORTEST_LOOP = 24
PERCENTILES = (10, 50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One judged response: `Response(token_ids=(8, 16, 8, 1), ended=True, outcome="correct")`."""

    token_ids: Sequence[int]
    "The response without its prompt; the end token is last where `ended`."
    ended: bool
    "Whether it ended by itself within the limit; otherwise it was truncated."
    outcome: Outcome
    "The verifier's word."


def seq_rep_n(ids: Sequence[int], n: int) -> float:
    """1 - unique n-grams / all n-grams, 0 where `ids` is shorter than n (Welleck et al., arXiv 1908.04319)."""
    count = len(ids) - n + 1
    if count <= 0:
        return 0.0
    return 1.0 - len(set(zip(*(ids[i : i + count] for i in range(n)), strict=True))) / count


def tail_loop(ids: Sequence[int]) -> tuple[int, int]:
    """Smallest period p <= 256 whose exact periodic suffix covers at least max(3p, 24) tokens, and how many it covers.

    (0, 0) where there is none.
    """
    row = list(ids)
    size = len(row)
    for period in range(1, min(LONGEST_PERIOD, size // 3) + 1):
        start = size - max(3 * period, SHORTEST_LOOP)
        if start < 0 or row[-1] != row[-1 - period] or row[start + period :] != row[start : size - period]:
            continue
        while start > 0 and row[start - 1] == row[start - 1 + period]:
            start -= 1
        return period, size - start
    return 0, 0


def response_metrics(responses: Sequence[Response]) -> dict[str, Metric]:
    """Canonical metrics over all responses of a step; a mean over no response is left out."""
    if not responses:
        return {}
    lengths = np.array([len(response.token_ids) for response in responses], dtype=float)
    outcomes = np.array([response.outcome for response in responses])
    ended = np.array([response.ended for response in responses])
    bodies = [response.token_ids[:-1] if response.ended else response.token_ids for response in responses]
    rep4 = np.array([seq_rep_n(body, 4) for body in bodies])
    loops = np.array([tail_loop(body)[0] > 0 for body in bodies])
    metrics: dict[str, Metric] = {
        "accuracy": _mean(outcomes == "correct"),
        "infra_failed_frac": _mean(outcomes == "infra_failed"),
        "response_length_mean": _mean(lengths),
        "response_length_max": float(lengths.max()),
        "eos_frac": _mean(ended),
        "truncated_frac": _mean(~ended),
        "rep4_mean": _mean(rep4),
        "repetition_frac": _mean(rep4 > REPETITIVE),
        "tail_loop_frac": _mean(loops),
    }
    for percent, value in zip(PERCENTILES, np.percentile(lengths, PERCENTILES), strict=True):
        metrics[f"response_length_p{percent}"] = float(value)
    for outcome in ("correct", "incorrect"):
        if (outcomes == outcome).any():
            metrics[f"response_length_{outcome}_mean"] = _mean(lengths[outcomes == outcome])
    return metrics


def _mean(values: NDArray[np.generic]) -> tuple[float, float]:
    return float(np.mean(values.astype(float))), float(len(values))
