"""`regimescope warm-start`: train the tiny policy's warm starts from nothing, on noisy worked arithmetic.

Two stages: a common base (2,250 steps of 64 solutions), then each named warm start from it (700 steps of 48). The
corpus is often wrong on purpose, so that sampling finds right and wrong answers to the same problem. The same seed on
the same machine gives the same weights, byte for byte. The shipped ones: `regimescope warm-start A B -o trainer/warm`;
`docs/warm-starts.md` says what was measured.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from regimescope.trainer.answers.verifier import Verifier
from regimescope.trainer.evaluate import accuracy
from regimescope.trainer.policy import Policy, new_tiny_policy, save_policy, token_logps
from regimescope.trainer.rollout import SamplingSpec, make_engine
from regimescope.trainer.task import TASKS, ProblemStream, TaskSpec, draw_solution

NAMES = ("A", "B")
MAX_TOKENS = 96
GRADIENT_NORM = 1.0
RAMP_STEPS = 100
"Steps of linear warm-up of the learning rate."
FLAT_SHARE = 0.7
"Share of the steps after which the learning rate falls linearly to a twentieth."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One supervised stage."""

    steps: int
    "Gradient steps."
    rows: int
    "Solutions per step."
    lr: float
    "Peak learning rate (AdamW, weight decay 0.01)."


BASE_STAGE = Stage(steps=2250, rows=64, lr=3e-3)
NAMED_STAGE = Stage(steps=700, rows=48, lr=1.5e-3)
QUICK_BASE, QUICK_NAMED = Stage(steps=8, rows=16, lr=3e-3), Stage(steps=4, rows=16, lr=1.5e-3)


def main(argv: list[str]) -> int:
    """The command: train, save and measure each named warm start."""
    args = _parse(argv)
    torch.set_num_threads(1)
    policy = new_tiny_policy(args.seed)
    train_stage(policy, TASKS["base"], QUICK_BASE if args.quick else BASE_STAGE, seed=args.seed, title="base")
    base = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    for name in args.names or NAMES:
        policy.model.load_state_dict(base)
        train_stage(policy, TASKS[name], QUICK_NAMED if args.quick else NAMED_STAGE, seed=args.seed + 1, title=name)
        save_policy(policy, args.out / name)
        count = 64 if args.quick else 1024
        sampled, greedy = (measure(policy, TASKS[name], count=count, temperature=t) for t in (1.0, 0.0))
        measured = f"accuracy {sampled:.3f} sampled, {greedy:.3f} greedy, on {count} held-out problems"
        print(f"{args.out / name}: {measured}", flush=True)
    return 0


def train_stage(policy: Policy, spec: TaskSpec, stage: Stage, *, seed: int, title: str) -> float:
    """Supervised training on fresh solutions; changes `policy` in place and returns the last loss, nats per token."""
    problems, rng = ProblemStream(spec, seed=seed), random.Random(f"solutions {seed}")
    parameters = policy.model.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=stage.lr, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    loss = torch.zeros(())
    quiet = not sys.stderr.isatty()
    progress = tqdm(range(1, stage.steps + 1), desc=f"warm-start {title}", unit="step", disable=quiet)
    for step in progress:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(stage, step)
        prompts, rows = _corpus_rows(policy, spec, problems, rng, stage.rows)
        scored = token_logps(policy, rows, [len(prompt) for prompt in prompts])
        loss = -scored.logp.sum() / scored.valid.sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), GRADIENT_NORM)
        optimizer.step()
        if step % 50 == 0:
            progress.set_postfix(loss=f"{loss.item():.3f}")
    return loss.item()


def learning_rate(stage: Stage, step: int) -> float:
    """Linear up over the first steps, flat, linear down; `step` counts from 1."""
    fall = (stage.steps - step) / ((1 - FLAT_SHARE) * stage.steps)
    decay = 1.0 if step < FLAT_SHARE * stage.steps else max(0.05, fall)
    return stage.lr * min(1.0, step / RAMP_STEPS) * decay


def measure(policy: Policy, spec: TaskSpec, *, count: int, temperature: float, seed: int = 1) -> float:
    """Accuracy on `count` held-out problems; temperature 0 is greedy."""
    problems = ProblemStream(spec, seed=seed, held_out=True).take(count)
    sampling = SamplingSpec(n=1, max_tokens=MAX_TOKENS, seed=seed, temperature=temperature)
    return accuracy(make_engine("transformers", policy), policy, problems, sampling, Verifier())


def _corpus_rows(
    policy: Policy, spec: TaskSpec, problems: ProblemStream, rng: random.Random, count: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and prompt + solution + end token, as ids."""
    drawn = problems.take(count)
    prompts = [policy.encode(problem.text) for problem in drawn]
    solutions = [policy.encode(draw_solution(problem, spec, rng)) for problem in drawn]
    return prompts, [[*prompt, *solution, policy.eos_id] for prompt, solution in zip(prompts, solutions, strict=True)]


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="regimescope warm-start",
        description="Train the tiny policy's warm starts from nothing (about six CPU-minutes for both).",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)} (default: all)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="each goes to DIR/NAME")
    parser.add_argument("--seed", type=int, default=0, help="of weights and corpus (default 0: the shipped ones)")
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that everything works")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in NAMES:
            parser.error(f"no warm start {name!r}: there is {', '.join(NAMES)}")
    return args
