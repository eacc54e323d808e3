"""Rollouts in the trainer's process, with the very weights that are trained, for any causal LM of transformers.

A loop over the key-value cache instead of `generate` (2.5 times faster for the tiny policy): each prompt is read once
and its cache repeated n times, rows that ended leave the batch, the log-probability of each sampled token is kept. One
uniform number per row and position, drawn at the start, decides each token, so that no response depends on when other
rows leave, or on how the prompts are split over several calls (`SamplingSpec.first`). A model whose cache is no list of
keys and values (recurrent layers) reads the whole row for each token.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from regimescope.trainer.errors import EngineError
from regimescope.trainer.policy import NEVER, Policy
from regimescope.trainer.rollout.types import EngineCapabilities, EngineHealth, Rollout, SamplingSpec, SyncReport

NAME = "transformers"
COMPACT_BELOW = 0.8
"Finished rows leave when the unfinished are fewer than this share of the batch: copying the cache has its price."


class TransformersEngine:
    """The engine `transformers` over one policy; see RolloutEngine for the methods."""

    capabilities = EngineCapabilities(transports=("shared",), devices=("cpu", "cuda"), infer_exact=True)

    def __init__(self, policy: Policy, *, weight_version: int = 0) -> None:
        self._policy = policy
        self._version = weight_version
        self._closed = False

    def generate(self, prompts: Sequence[Sequence[int]], spec: SamplingSpec) -> list[Rollout]:
        """`spec.n` rollouts per prompt, grouped by prompt."""
        self._check(prompts, spec)
        with torch.inference_mode():
            batch = _Batch(self._policy, prompts, spec)
            batch.run()
        return batch.rollouts(self._version)

    def sync(self, weights: Iterable[tuple[str, Tensor]], weight_version: int) -> SyncReport:
        """The weights are shared: only their number changes, and it never goes back."""
        start = time.perf_counter()
        if weight_version < self._version:
            raise EngineError(f"weight version {weight_version} is older than {self._version}: versions only grow")
        self._version = weight_version
        return SyncReport(
            weight_version=weight_version,
            seconds=time.perf_counter() - start,
            bytes=0,
            probe_mean_abs=None,
            probe_max_abs=None,
            probe_k3=None,
            ok=True,
        )

    def health(self) -> EngineHealth:
        """Ready until closed."""
        message = "closed" if self._closed else ""
        return EngineHealth(ready=not self._closed, weight_version=self._version, address="in process", message=message)

    def close(self) -> None:
        """Refuse further calls; nothing else is held."""
        self._closed = True

    def _check(self, prompts: Sequence[Sequence[int]], spec: SamplingSpec) -> None:
        if self._closed:
            raise EngineError("the transformers engine is closed: make a new one")
        if not prompts or not all(len(prompt) for prompt in prompts):
            raise EngineError("every rollout needs a prompt of at least one token")
        limit = getattr(self._policy.model.config, "max_position_embeddings", None)
        longest = max(map(len, prompts)) + spec.max_tokens
        if limit is not None and longest > limit:
            raise EngineError(
                f"prompt and response need up to {longest} tokens, {self._policy.name} has {limit} positions: "
                "lower max_tokens"
            )


class _Batch:
    """The rows of one `generate` call. `rows` numbers those still in the batch, in step with cache and mask."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], spec: SamplingSpec) -> None:
        self.policy, self.spec = policy, spec
        self.device = policy.model.device
        count = len(prompts) * spec.n
        self.uniform = _uniform(spec, count).to(self.device)
        self.tokens = torch.full((count, spec.max_tokens), policy.pad_id, device=self.device)
        self.logps = torch.zeros(count, spec.max_tokens, device=self.device)
        self.lengths = torch.zeros(count, dtype=torch.long, device=self.device)
        self.stopped = torch.zeros(count, dtype=torch.bool, device=self.device)
        self.rows = torch.arange(count, device=self.device)
        self.stop_ids = torch.tensor(sorted({policy.eos_id, *spec.stop_ids}), device=self.device)
        self.never_ids = torch.tensor(policy.never_ids, dtype=torch.long, device=self.device)
        accepted = inspect.signature(policy.model.forward).parameters
        self.with_positions = "position_ids" in accepted
        self.cache_name = "cache" if "cache" in accepted else "past_key_values"  # renamed in transformers 5.24
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self.ids, self.mask = self._left_padded(prompts)
        self.cache: Cache | None = None
        self.cached = True

    def run(self) -> None:
        """Sample until every row has ended or is full."""
        logits = self._read_prompts()
        for position in range(self.spec.max_tokens):
            token = self._sample(logits, position)
            if position + 1 == self.spec.max_tokens:
                break
            token = self._compact(token)
            if not len(self.rows):
                break
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], 1)
            self.ids = token[:, None] if self.cached else torch.cat([self.ids, token[:, None]], 1)
            logits = self._forward()

    def rollouts(self, version: int) -> list[Rollout]:
        tokens, logps = self.tokens.cpu().numpy(), self.logps.cpu().numpy()
        return [
            Rollout(
                prompt_index=i // self.spec.n,
                token_ids=tuple(tokens[i, :length].tolist()),
                logprobs=logps[i, :length].astype(np.float32),
                finish_reason="stop" if stopped else "length",
                weight_version=version,
                engine=NAME,
            )
            for i, (length, stopped) in enumerate(zip(self.lengths.tolist(), self.stopped.tolist(), strict=True))
        ]

    def _read_prompts(self) -> Tensor:
        """Logits after each prompt, n times; finds out whether the cache can be used."""
        logits = self._forward()
        layers = [] if self.cache is None else self.cache.layers
        self.cached = bool(layers) and all(hasattr(layer, "batch_select_indices") for layer in layers)
        if self.cached and self.cache is not None:
            self.cache.batch_repeat_interleave(self.spec.n)
        else:
            self.cache = None
        self.ids = self.ids.repeat_interleave(self.spec.n, 0)
        self.mask = self.mask.repeat_interleave(self.spec.n, 0)
        return logits.repeat_interleave(self.spec.n, 0)

    def _left_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, prompts))
        ids = [[self.policy.pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def _forward(self) -> Tensor:
        """Logits after the last token of each row of `ids` [rows, V] float32; extends the cache where there is one."""
        extra: dict[str, Tensor | Cache | None] = {self.cache_name: self.cache}
        if self.with_positions:
            extra["position_ids"] = (self.mask.cumsum(1) - 1).clamp_min(0)[:, -self.ids.shape[1] :]
        out = self.policy.model(
            input_ids=self.ids, attention_mask=self.mask, use_cache=self.cached, **extra, **self.last_only
        )
        self.cache = getattr(out, self.cache_name, None) if self.cached else None
        return out.logits[:, -1].float()  # type: ignore[no-any-return]

    def _sample(self, logits: Tensor, position: int) -> Tensor:
        """Draw one token for each row of the batch and note it for those that have not stopped."""
        if len(self.never_ids):
            logits = logits.index_fill(-1, self.never_ids, NEVER)
        if self.spec.temperature not in (0.0, 1.0):
            logits = logits / self.spec.temperature
        logps = torch.log_softmax(logits, -1)
        if self.spec.temperature == 0.0:
            token = logps.argmax(-1)
        else:
            cumulative = logps.double().exp().cumsum(-1)
            point = self.uniform[self.rows, position, None] * cumulative[:, -1:]
            token = torch.searchsorted(cumulative, point, right=True)[:, 0].clamp_max(logps.shape[-1] - 1)
        open_rows = ~self.stopped[self.rows]
        rows = self.rows[open_rows]
        self.tokens[rows, position] = token[open_rows]
        self.logps[rows, position] = logps.gather(-1, token[:, None])[open_rows, 0]
        self.lengths[rows] += 1
        self.stopped[rows] = torch.isin(token[open_rows], self.stop_ids)
        return token

    def _compact(self, token: Tensor) -> Tensor:
        """Let stopped rows leave once they are many; returns the tokens of the rows that stay."""
        keep = (~self.stopped[self.rows]).nonzero()[:, 0]
        if len(keep) and len(keep) >= COMPACT_BELOW * len(self.rows):
            return token
        self.rows, self.mask, self.ids = self.rows[keep], self.mask[keep], self.ids[keep]
        if self.cache is not None:
            self.cache.batch_select_indices(keep)
        return token[keep]


def _uniform(spec: SamplingSpec, count: int) -> Tensor:
    """[count, max_tokens] float64 in [0, 1). Those of the rows before are drawn and left: 10 ns each."""
    before = spec.first * spec.n
    generator = torch.Generator().manual_seed(spec.seed)
    drawn = torch.rand(before + count, spec.max_tokens, dtype=torch.float64, generator=generator)
    return drawn[before:]
