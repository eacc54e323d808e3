"""Cost of the token statistics beside the work that they watch: forward + backward from the logits, one CPU thread.

    ./dev bench token_stats [--rounds 41] [--no-trl]
    ./dev bench token_stats --device cuda --dtype bfloat16 --tokens 32768

Rows, for a vocabulary of 32,768 and of 151,936, 2^25 logits in float32:
- `denominator`: log-probabilities and entropy by `token_distribution`, the DISPO loss, its gradient down to the logits.
- `+ everything but the effect`: sum p^2, buckets, both histograms, the numbers of the loss, one copy to the host, and
  the TokenStats made of it. `+ entropy effect`: all that, and the effect on a seeded eighth of the tokens.
- `plain torch`: the denominator's work by log_softmax, with the entropy from it.
- `ours` and `TRL`, `loss and metrics`: what happens after the log-probabilities. Ours: the loss with all of the above.
  TRL: `GRPOTrainer._compute_loss` (loss_type cispo: mean entropy, one clip ratio) with given log-probabilities.
- `TRL: entropy_from_logits`: what its entropy costs, without gradient. Both by TRL's own code in its own environment
  (benchmarks/trl-constraints.txt), on logits of the same size.
Time: medians of rounds in which each row runs once, in turns; an extra is the median of its differences within a round.
On a CPU it is the processor time of the process, so that others on the machine count less; on CUDA the wall time of a
synchronised device. Peak: on a CPU a process of its own for each row, its highest resident set less that before the
logits were made; nothing is left out, the allocator's and the kernels' own buffers included. On CUDA
`max_memory_allocated`. It is shown in sizes of the logits: they and their gradient are 2.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from statistics import median

import psutil
import torch
from benchmarks import _trl
from benchmarks._runs import BenchmarkError, table
from benchmarks._token_stats_work import DENOMINATOR, EFFECT, PLAIN, RESPONSES, REST, WAYS, Work

VOCABULARIES = (32_768, 151_936)
LOGITS = 1 << 25
HEAD = ("vocabulary", "tokens", "what", "ms", "of the denominator", "peak, logits", "peak, of the denominator")
GPU = "--device cuda --dtype bfloat16 --tokens 32768"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Highest shares of the denominator."""

    rest: float
    "Everything but the entropy effect."
    effect: float
    "The effect, on top."
    peak: float = 1.1
    "Peak memory over that of the denominator."
    copies: float = 2.5
    "Peak memory in sizes of the logits: with their gradient 2, with a copy 3."


LIMITS = {"cpu": Limits(rest=0.05, effect=0.06), "cuda": Limits(rest=0.02, effect=0.02)}
"On CUDA both parts together stay below 2 %."


# ------------------------------------------------------------------------------------------------------ measuring
FEW = 5
"Rounds of what is only shown for comparison."


def seconds(job: Callable[[], None], device: str) -> float:
    clock = time.process_time if device == "cpu" else time.perf_counter
    if device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    job()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def rounds(work: Work, names: Sequence[str], count: int, device: str) -> dict[str, list[float]]:
    """Seconds of each way in each round; the first round warms up and is left out."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for i in range(count + 1):
        turn = i % len(names)  # nobody always comes first
        for name in [*names[turn:], *names[:turn]]:
            work.logits.grad = None
            gc.collect()
            spent = seconds(partial(WAYS[name], work), device)
            if i:
                taken[name].append(spent)
    work.logits.grad = None
    return taken


def peak(name: str, vocabulary: int, tokens: int, device: str, dtype: str) -> float:
    """Peak memory in sizes of the logits."""
    if device == "cpu":
        arguments = ["--peak-of", name, "--vocabulary", str(vocabulary), "--tokens", str(tokens), "--dtype", dtype]
        command = [sys.executable, "-m", "benchmarks.token_stats", *arguments]
        done = subprocess.run(command, cwd=_trl.FOLDER.parent, capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchmarkError(f"the process that measures the peak of {name!r} failed:\n{done.stderr}")
        return float(done.stdout)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    work = Work(vocabulary, tokens, device, getattr(torch, dtype))
    torch.cuda.reset_peak_memory_stats()
    try:
        WAYS[name](work)
    except torch.OutOfMemoryError:  # with 20 GB a copy the plain way may not fit
        if name != PLAIN:
            raise
        return nan
    return (torch.cuda.max_memory_allocated() - before) / _bytes(work.logits)


def peak_here(name: str, vocabulary: int, tokens: int, dtype: str) -> float:
    """The same on a CPU, for a process that does nothing else."""
    WAYS[name](Work(64, RESPONSES, "cpu", getattr(torch, dtype)))  # what is loaded at the first use
    before = psutil.Process().memory_info().rss
    work = Work(vocabulary, tokens, "cpu", getattr(torch, dtype))
    WAYS[name](work)
    unit = 1 if sys.platform == "darwin" else 1024
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before) / _bytes(work.logits)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# ------------------------------------------------------------------------------------------------------ the table
def tokens_of(vocabulary: int, args: argparse.Namespace) -> int:
    return max(1, (args.tokens or LOGITS // vocabulary) // RESPONSES) * RESPONSES


def measure(vocabulary: int, peaks: Mapping[str, float], args: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """(rows of the table, limits that were missed) of one vocabulary."""
    tokens = tokens_of(vocabulary, args)
    work = Work(vocabulary, tokens, args.device, getattr(torch, args.dtype))
    taken = rounds(work, (DENOMINATOR, REST, EFFECT), args.rounds, args.device)
    taken |= {PLAIN: [nan]} if isnan(peaks[PLAIN]) else rounds(work, (PLAIN,), FEW, args.device)
    own = median(taken[DENOMINATOR])
    extra = {
        name: median(a - b for a, b in zip(taken[name], taken[base], strict=True)) / own
        for name, base in ((REST, DENOMINATOR), (EFFECT, REST))
    }
    after = work.after()
    spent = {"ours: loss and metrics": median(seconds(after, args.device) for _ in range(20))}
    del work, after
    if not args.no_trl:
        spent |= json.loads(_trl.run("_trl_stats_worker", *map(str, (vocabulary, tokens, RESPONSES, FEW))))
    rows = []
    for name in WAYS:
        share = f"{extra[name]:+.1%}" if name in extra else f"{median(taken[name]) / own:.2f} x"
        memory = [f"{peaks[name]:.2f}", f"{peaks[name] / peaks[DENOMINATOR]:.3f} x"]
        rows.append([name, f"{1e3 * median(taken[name]):.1f}", share, *memory])
    rows += [[name, f"{1e3 * part:.1f}", f"{part / own:.1%}", "-", "-"] for name, part in spent.items()]
    labelled = [[f"{vocabulary:,}", f"{tokens:,}", *row] for row in rows]
    return labelled, [f"V = {vocabulary:,}: {what}" for what in over(extra, peaks, args.device)]


def over(extra: Mapping[str, float], peaks: Mapping[str, float], device: str) -> list[str]:
    """The limits that were missed."""
    limits = LIMITS[device]
    missed = {
        f"everything but the effect {extra[REST]:.1%}": extra[REST] > limits.rest,
        f"the effect {extra[EFFECT]:.1%}": extra[EFFECT] > limits.effect,
        f"peak {peaks[EFFECT] / peaks[DENOMINATOR]:.2f} x": peaks[EFFECT] > limits.peak * peaks[DENOMINATOR],
        f"a copy of the logits, peak {peaks[EFFECT]:.2f}": peaks[EFFECT] >= limits.copies,
    }
    if device == "cuda":
        missed["both together"] = extra[REST] + extra[EFFECT] > limits.rest
    return [what for what, is_missed in missed.items() if is_missed]


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    torch.set_num_threads(1)
    if args.peak_of is not None:
        print(peak_here(args.peak_of, args.vocabulary, args.tokens, args.dtype))
        return 0
    if args.device == "cuda" and not torch.cuda.is_available():
        print("bench: --device cuda, but torch sees no CUDA device here", file=sys.stderr)
        return 2
    vocabularies = [args.vocabulary] if args.vocabulary else VOCABULARIES
    rows, missed = [], []
    try:  # all peaks first: on Linux a process starts with the highest resident set of the one that started it
        peaks = {
            v: {name: peak(name, v, tokens_of(v, args), args.device, args.dtype) for name in WAYS} for v in vocabularies
        }
        for vocabulary in vocabularies:
            own_rows, own_missed = measure(vocabulary, peaks[vocabulary], args)
            rows += own_rows
            missed += own_missed
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(table(HEAD, rows))
    limits = LIMITS[args.device]
    print(
        f"target: everything but the effect <= {limits.rest:.0%}, the effect <= {limits.effect:.0%} more, peak <= "
        f"{limits.peak} x, no copy of the logits: {'MISSED: ' + '; '.join(missed) if missed else 'met'}"
    )
    if args.device == "cpu":
        print(f"load of the machine: {os.getloadavg()[0]:.1f} (the figures are worth something on a quiet one)")
        print(f"the part for a GPU (both together <= 2 %) did not run here; it is ./dev bench token_stats {GPU}")
    return 1 if missed else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench token_stats", description="Cost of the token statistics.")
    parser.add_argument("--rounds", type=int, default=41, help="measured rounds (default 41)")
    parser.add_argument("--device", choices=sorted(LIMITS), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="of the logits")
    parser.add_argument("--tokens", type=int, help=f"at least {RESPONSES}; default: as many as make 2^25 logits")
    parser.add_argument("--vocabulary", type=int, help="this one alone")
    parser.add_argument("--no-trl", action="store_true", help="leave TRL out")
    parser.add_argument("--peak-of", choices=list(WAYS), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.no_trl |= args.device != "cpu"  # its environment has torch for CPUs
    return args


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
