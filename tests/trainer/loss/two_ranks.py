"""One gradient update of a fixed batch, spread over the ranks of torchrun (gloo): `torchrun ... two_ranks.py OUT.json`.

Every rank takes every so-manieth response, weights and sample of the entropy effect are those of the whole update, and
sums and gradients are added by all_reduce. tests/trainer/test_ranks.py compares the outcome of two ranks with one.
"""

import json
import sys

import torch
import torch.distributed as dist

from regimescope.monitor.bounds import SignBounds
from regimescope.trainer.loss.aggregation import token_weights
from regimescope.trainer.loss.effect import effect_sample
from regimescope.trainer.loss.objective import policy_loss
from regimescope.trainer.loss.published import published
from regimescope.trainer.loss.statistics import SampledEffect, token_sums
from regimescope.trainer.policy import new_tiny_policy, token_logps

RESPONSES, PROMPT = 13, 5


def batch() -> tuple[list[list[int]], list[torch.Tensor], torch.Tensor]:
    """(rows of prompt and response, drift of log r per token, advantages)."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 30, (RESPONSES,), generator=generator).tolist()
    rows = [torch.randint(2, 19, (PROMPT + n,), generator=generator).tolist() for n in lengths]
    drift = [torch.randn(n, generator=generator, dtype=torch.float64) for n in lengths]
    return rows, drift, torch.randint(-1, 2, (RESPONSES,), generator=generator).double()


def run(rank: int, ranks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(sums [2, SIZE] of this rank's responses by task, gradients)."""
    torch.set_num_threads(1)
    policy = new_tiny_policy(0)
    policy.model.double()
    rows, drift, advantages = batch()
    own = list(range(rank, RESPONSES, ranks))
    weights = token_weights(torch.tensor([len(d) for d in drift]), advantages, "token_mean")
    keys = torch.arange(RESPONSES)[own, None]
    place = torch.arange(1, max(len(rows[i]) for i in own))[None] - PROMPT
    sampled = effect_sample(keys, place, every=3, seed=17, update=1)
    out = token_logps(policy, [rows[i] for i in own], [PROMPT] * len(own), sampled=sampled)
    old = out.logp.detach() - torch.zeros_like(out.logp).masked_scatter(out.valid, torch.cat([drift[i] for i in own]))
    dispo = published("dispo").rule
    tight = dispo.with_bounds(type(dispo.bounds)(pos=dispo.bounds.pos, neg=SignBounds(w_min=0.9, w_max=1.5)))
    loss = policy_loss(out.logp, old, advantages[own], out.valid, tight, token_weight=weights[own])
    loss.loss.backward()
    effect = SampledEffect(effect=out.effect[out.valid], sampled=sampled[out.valid])
    task = (torch.tensor(own)[:, None] % 2).expand_as(out.valid)[out.valid]
    sums = token_sums(loss.terms, out.entropy[out.valid], effect=effect, slices=task, slice_count=2)
    return sums, [p.grad for p in policy.model.parameters() if p.grad is not None]


def main() -> None:
    dist.init_process_group("gloo")
    sums, grads = run(dist.get_rank(), dist.get_world_size())
    for tensor in (sums, *grads):
        dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        found = {
            "ranks": dist.get_world_size(),
            "sums": sums.tolist(),
            "grad": torch.cat([g.flatten() for g in grads]).tolist(),
        }
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
