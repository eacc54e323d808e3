"""Tokens per second of the repetition measures against the plain way in use elsewhere (CPU time, one thread).

    ./dev bench repetition [--rounds 9]

16 responses x 8,192 tokens: random ids, phrases that come back, a loop at the end. The plain way: n-grams as a set of
tuples, slices compared for every period, a loop over the tokens for the sure run; zlib is the same on both sides. Both
start from Python lists of ids, and must agree. Medians of interleaved rounds. Target: at least 5x over all measures
together. Then the size of our lab, 256 responses x 35 tokens.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
from benchmarks._runs import table
from numpy.typing import NDArray

from regimescope.trainer.repetition import LONGEST_PERIOD, SHORTEST_LOOP, longest_run, seq_rep, tail_loops, token_rows
from regimescope.trainer.responses import Response, response_metrics, response_rows
from regimescope.trainer.text_statistics import TAIL_CHARACTERS, ZLIB_LEVEL, compression_ratios

RESPONSES, TOKENS, VOCABULARY = 16, 8192, 50_000
LAB_RESPONSES, LAB_TOKENS, LAB_VOCABULARY = 256, 35, 16
TARGET = 5.0
Run = Callable[[], object]


def plain_seq_rep(ids: Sequence[int], n: int) -> float:
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def plain_tail_loop(ids: Sequence[int]) -> int:
    """The period."""
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 3) + 1):
        start = len(ids) - max(3 * period, SHORTEST_LOOP)
        if start >= 0 and ids[start + period :] == ids[start:-period]:
            return period
    return 0


def plain_sure_run(logps: Sequence[float], threshold: float = float(np.log(0.99))) -> int:
    longest = run = 0
    for logp in logps:
        run = run + 1 if logp > threshold else 0
        longest = max(longest, run)
    return longest


def plain_compression(text: str) -> float:
    raw = text[-TAIL_CHARACTERS:].encode()
    return len(raw) / len(zlib.compress(raw, ZLIB_LEVEL))


def plain_rows(responses: Sequence[Response], logps: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return [
        (
            plain_seq_rep(response.token_ids, 4),
            plain_seq_rep(response.token_ids, 20),
            plain_tail_loop(response.token_ids),
            plain_sure_run(row),
            plain_compression(response.text),
        )
        for response, row in zip(responses, logps, strict=True)
    ]


def written(kind: int, tokens: int, vocabulary: int, rng: np.random.Generator) -> list[int]:
    """Ids of one response. Kind 0: random; 1: phrases of 2 to 30 tokens, the common ones often; 2: random, and the last
    quarter repeats some 37 tokens."""
    ids = rng.integers(0, vocabulary, tokens)
    if kind == 1:
        phrases = [rng.integers(0, vocabulary, rng.integers(2, 31)) for _ in range(1000)]
        ids = np.concatenate([phrases[rank % 1000] for rank in rng.zipf(1.3, tokens // 2)])[:tokens]
    if kind == 2:
        quarter = tokens // 4
        ids[-quarter:] = np.resize(ids[: min(37, quarter // 4)], quarter)
    return [int(value) for value in ids]


def made(count: int, tokens: int, vocabulary: int) -> list[Response]:
    """Responses of the three kinds in turn, with text and log-probabilities."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("etaoinshrdlu"), rng.integers(1, 9))) for _ in range(vocabulary)]
    responses = []
    for place in range(count):
        ids = written(place % 3, tokens, vocabulary, rng)
        logps: NDArray[np.float32] = np.log(rng.beta(20, 0.5, len(ids))).astype(np.float32)
        text = " ".join(words[id_] for id_ in ids)
        responses.append(Response(token_ids=ids, ended=False, outcome="incorrect", text=text, logps=logps))
    return responses


def interleaved(runs: Sequence[Run], rounds: int) -> list[float]:
    """Median CPU seconds of each run, all of them once a round after one round to warm up. CPU time, because a busy
    neighbour on the machine is no part of the measure."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, taken in zip(runs, seconds, strict=True):
            begin = time.process_time()
            run()
            taken.append(time.process_time() - begin)
    return [median(taken[1:]) for taken in seconds]


def agree(responses: Sequence[Response], logps: Sequence[Sequence[float]]) -> bool:
    ours = response_rows(responses)
    columns = (ours.rep4, ours.rep20, ours.loop_period, ours.sure_run, ours.compression)
    return np.allclose(np.array(plain_rows(responses, logps)).T, columns, rtol=0, atol=1e-12)


def long_responses(rounds: int) -> bool:
    responses = made(RESPONSES, TOKENS, VOCABULARY)
    ids = [response.token_ids for response in responses]
    arrays = [response.logps for response in responses if response.logps is not None]
    logps, texts = [row.tolist() for row in arrays], [response.text for response in responses]
    rows = token_rows(ids)
    measures: dict[str, tuple[Run, Run]] = {
        "seq-rep-4": (lambda: seq_rep(rows, 4), lambda: [plain_seq_rep(row, 4) for row in ids]),
        "seq-rep-20": (lambda: seq_rep(rows, 20), lambda: [plain_seq_rep(row, 20) for row in ids]),
        "tail loop": (lambda: tail_loops(rows), lambda: [plain_tail_loop(row) for row in ids]),
        "sure run": (lambda: longest_run(arrays), lambda: [plain_sure_run(row) for row in logps]),
        "compression": (lambda: compression_ratios(texts), lambda: [plain_compression(text) for text in texts]),
        "all together": (lambda: response_rows(responses), lambda: plain_rows(responses, logps)),
    }
    convert = partial(token_rows, ids)
    converting, *seconds = interleaved([convert, *(run for pair in measures.values() for run in pair)], rounds)
    ours, plain = seconds[0::2], seconds[1::2]
    count = RESPONSES * TOKENS
    print(f"{RESPONSES} responses x {TOKENS:,} tokens, million tokens per second\n")
    lines = [
        [name, f"{count / a / 1e6:.1f}", f"{count / b / 1e6:.1f}", f"{b / a:.1f}x"]
        for name, a, b in zip(measures, ours, plain, strict=True)
    ]
    lines.insert(0, ["lists to numbered ids", f"{count / converting / 1e6:.1f}", "", ""])
    print(table(["measure", "ours", "plain", "ratio"], lines))
    ratio, zlib_share = plain[-1] / ours[-1], ours[-2] / ours[-1]
    same = agree(responses, logps)
    print(f"\nzlib is {zlib_share:.0%} of ours and {plain[-2] / plain[-1]:.0%} of the plain way")
    print(f"both give the same numbers: {'yes' if same else 'NO'}")
    print(f"target: all measures together >= {TARGET:.0f}x: {ratio:.1f}x, {'met' if ratio >= TARGET else 'MISSED'}")
    return same and ratio >= TARGET


def lab(rounds: int) -> None:
    """Milliseconds a step where arrays have little to gain."""
    responses = made(LAB_RESPONSES, LAB_TOKENS, LAB_VOCABULARY)
    bare = [Response(token_ids=tuple(r.token_ids), ended=r.ended, outcome=r.outcome) for r in responses]
    logps = [response.logps.tolist() for response in responses if response.logps is not None]
    runs: dict[str, Run] = {
        "ours, all measures and metrics": lambda: response_metrics(responses),
        "the plain way, all measures": lambda: plain_rows(responses, logps),
        "ours from ids alone": lambda: response_metrics(bare),
        "the plain way, seq-rep-4 and tail loop": lambda: [
            (plain_seq_rep(r.token_ids, 4), plain_tail_loop(r.token_ids)) for r in bare
        ],
    }
    seconds = interleaved(list(runs.values()), rounds)
    print(f"\n{LAB_RESPONSES} responses x {LAB_TOKENS} tokens, milliseconds a step\n")
    print(table(["", "ms"], [[name, f"{1e3 * s:.2f}"] for name, s in zip(runs, seconds, strict=True)]))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench repetition", description="Speed of the repetition measures.")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    args = parser.parse_args(argv)
    good = long_responses(args.rounds)
    lab(args.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
