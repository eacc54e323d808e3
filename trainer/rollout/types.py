"""Values that cross the boundary to a rollout engine: frozen, checked when they are made.

SamplingSpec(n=8, temperature=1.0, max_tokens=96, seed=7)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regimescope.trainer.errors import SamplingError

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSpec:
    """How to sample. SamplingError for settings that make no sense, or that would make every importance ratio wrong."""

    n: int
    "Rollouts per prompt, at least 1."
    max_tokens: int
    "Longest response, end token included, at least 1."
    seed: int
    "The same seed, prompts, settings and weights give the same rollouts."
    first: int = 0
    """Number of the first prompt, where the prompts are a part of a batch: each part then draws the random numbers that
    it has in the whole."""
    temperature: float = 1.0
    "Divides the logits; 0 = greedy."
    stop_ids: tuple[int, ...] = ()
    "Ids that end a response besides the policy's end token; kept as its last token."
    top_p: float = 1.0
    "Must be 1: it renormalises, so log-probabilities would be off by the mass of the nucleus."
    top_k: int = 0
    "Must be 0 (off), for the same reason."

    def __post_init__(self) -> None:
        if self.n < 1 or self.max_tokens < 1:
            raise SamplingError(f"n and max_tokens must be at least 1, got n={self.n}, max_tokens={self.max_tokens}")
        if self.first < 0:
            raise SamplingError(f"first must be at least 0, got {self.first}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise SamplingError(f"temperature must be finite and at least 0, got {self.temperature}")
        if self.top_p != 1.0 or self.top_k != 0:
            raise SamplingError(
                f"top_p={self.top_p}, top_k={self.top_k} is refused: sampling from a part of the distribution makes "
                "every importance ratio wrong by the mass of that part; leave top_p at 1 and top_k at 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """One response, such as `token_ids=(17, 8, 1), finish_reason="stop"` with three log-probabilities."""

    prompt_index: int
    "Index into the prompts of the call."
    token_ids: tuple[int, ...]
    "The response without its prompt; with finish_reason `stop` the last id is the end token or a stop id."
    logprobs: NDArray[np.float32]
    "[len(token_ids)], nats: `infer`, what the engine reports for each token, after the temperature (greedy: at 1)."
    finish_reason: FinishReason
    "`stop`: it ended by itself; `length`: cut at max_tokens."
    weight_version: int
    "Number of the weights that generated it."
    engine: str
    "Name of the engine."


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """What an engine can do."""

    transports: tuple[str, ...]
    "Ways in which new weights reach it: `shared` = it uses the trainer's own."
    devices: tuple[str, ...]
    "Devices it runs on."
    infer_exact: bool
    "Whether its log-probabilities equal the trainer's up to float32 rounding."


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What a weight sync did. The probe fields are None where nothing can differ, because the weights are shared."""

    weight_version: int
    "Version now in force."
    seconds: float
    "Time taken."
    bytes: int
    "Bytes sent; 0 for shared weights."
    probe_mean_abs: float | None
    "Mean absolute difference of log-probabilities, engine against trainer, nats."
    probe_max_abs: float | None
    "Largest absolute difference, nats."
    probe_k3: float | None
    "KL estimate k3 of the difference, nats."
    ok: bool
    "Whether engine and trainer agree."


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHealth:
    """Whether an engine can be asked now."""

    ready: bool
    "False after close."
    weight_version: int
    "Version in force."
    address: str
    "Where it runs: `in process`, or a URL."
    message: str
    "Empty when ready, else the reason."
