"""The batches that `trl_losses` compares: the golden fixture, and seeded random ones. Needs torch alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ROWS, GROUP, LONGEST = 8, 4, 32
"Of a random batch: rows, rows of one prompt, most tokens of a row."


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows of tokens with everything that a loss can ask for; values that would wreck it where `mask` is False."""

    new: Tensor
    "[B, T] float64 log-probability, as the next three."
    old: Tensor
    ref: Tensor
    infer: Tensor
    "Representable in float32: TRL keeps the engine's numbers so."
    advantages: Tensor
    "[B] float64"
    mask: Tensor
    "[B, T] bool"

    def rows(self, first: int, count: int) -> Batch:
        """Some of the rows."""
        chosen = slice(first, first + count)
        return Batch(
            new=self.new[chosen],
            old=self.old[chosen],
            ref=self.ref[chosen],
            infer=self.infer[chosen],
            advantages=self.advantages[chosen],
            mask=self.mask[chosen],
        )


def golden_batch(path: Path) -> Batch:
    """The fixture of the golden file; `ref` and `infer`, which it lacks, are made up."""
    fixture = json.loads(path.read_text("utf-8"))["fixture"]
    lengths = torch.tensor(fixture["lengths"])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]

    def filled(rows: list[list[float]], pad: float) -> Tensor:
        values = torch.full(mask.shape, pad, dtype=torch.float64)
        values[mask] = torch.tensor([x for row in rows for x in row], dtype=torch.float64).log()
        return values

    old = filled(fixture["p_old"], fixture["pad_logp_old"])
    noise = torch.linspace(-1.5, 1.5, mask.numel(), dtype=torch.float64).view(mask.shape)
    return Batch(
        new=old + filled(fixture["ratios"], fixture["pad_log_ratio"]),
        old=old,
        ref=old - noise,
        infer=(old + noise).float().double(),
        advantages=torch.tensor(fixture["advantages"], dtype=torch.float64),
        mask=mask,
    )


def random_batch(seed: int, *, hidden_rows: bool) -> Batch:
    """Ragged rows of both signs and of A = 0; the ratios of a row stay within 1e-4 of 1, or reach into the thousands.
    `hidden_rows`: two rows have no token."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (ROWS,), generator=generator)
    if hidden_rows:
        lengths[torch.randperm(ROWS, generator=generator)[:2]] = 0
    mask = torch.arange(int(lengths.max())) < lengths[:, None]

    def noise(scales: list[float]) -> Tensor:
        chosen = torch.randint(len(scales), (ROWS, 1), generator=generator)
        drawn = torch.randn(mask.shape, dtype=torch.float64, generator=generator)
        return (torch.tensor(scales, dtype=torch.float64)[chosen] * drawn).masked_fill(~mask, 3.0)

    old = -4 * torch.rand(mask.shape, dtype=torch.float64, generator=generator)
    moved = torch.rand(mask.shape, generator=generator) > 0.1  # a tenth of the tokens has r = 1 exactly
    advantages = torch.randn(ROWS, dtype=torch.float64, generator=generator)
    advantages[torch.randint(ROWS, (1,), generator=generator)] = 0.0
    return Batch(
        new=old + noise([1e-4, 0.03, 0.3, 2.0]) * moved,
        old=old,
        ref=old + noise([0.01, 0.5]),
        infer=(old - noise([1e-3, 0.05, 0.5])).float().double(),
        advantages=advantages,
        mask=mask,
    )
