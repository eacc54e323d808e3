"""Runs in TRL's environment for `token_stats`: what TRL's own metrics cost, by TRL's own code, one thread.

python -m benchmarks._trl_stats_worker VOCABULARY TOKENS ROWS ROUNDS      prints {"what": median CPU seconds}
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median

import torch
from benchmarks._trl_batches import Batch
from benchmarks._trl_losses_worker import Case, as_cispo, make_peer
from transformers.utils.logging import disable_progress_bar
from trl.trainer.utils import entropy_from_logits

from regimescope.trainer.loss.published import published

MODEL = Path(__file__).parent.parent / "trainer/warm/A"
QUICK = 20
"Rounds of what takes milliseconds."


def cpu_seconds(job: Callable[[], object], rounds: int) -> float:
    """Median; the first call warms up."""
    taken = []
    for _ in range(rounds + 1):
        start = time.process_time()
        job()
        taken.append(time.process_time() - start)
    return median(taken[1:])


def batch_of(tokens: int, rows: int) -> Batch:
    """Rows of equal length in float32, both signs and A = 0."""
    generator = torch.Generator().manual_seed(0)
    old = -4 * torch.rand(rows, tokens // rows, generator=generator)
    new = old + 0.3 * torch.randn(old.shape, generator=generator)
    advantages = torch.tensor([1.5, -0.5, 0.0, -1.0]).repeat(rows // 4)
    return Batch(new=new, old=old, ref=old, infer=old, advantages=advantages, mask=torch.ones_like(old).bool())


def main(vocabulary: int, tokens: int, rows: int, rounds: int) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    disable_progress_bar()
    batch = batch_of(tokens, rows)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        case = Case(name="cispo", objective=published("cispo"), trl=as_cispo(101.0))
        peer = make_peer(case, rows, 4, folder, str(MODEL))
        inputs = peer.rollout(batch, [0.0] * rows) | {"advantages": batch.advantages}
        peer.new = batch.new.clone().requires_grad_()
        loss = cpu_seconds(lambda: peer._compute_loss(peer.model, inputs), QUICK)
    logits = torch.empty(tokens, vocabulary).normal_(0, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        entropy = cpu_seconds(lambda: entropy_from_logits(logits), rounds)
    print(json.dumps({"TRL: loss and metrics": loss, "TRL: entropy_from_logits": entropy}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
