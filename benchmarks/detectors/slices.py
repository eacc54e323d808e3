"""False alarms and recall on the env slices of generated runs: `./dev bench detectors slices [SCALE]`.

A generated run of k tasks: each step draws 32 prompts with 8 responses among them, so a slice has a k-th of the
responses on average, and none in some steps. Each task has a difficulty, a length and a healthy path of its own; shares
are counted, means are as noisy as so few responses make them. The whole run is the mean over all responses. Counted
are warnings and criticals of the slices that no alert of the whole run explains.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from benchmarks.detectors import traces

from regimescope.detectors import Finding, Suite
from regimescope.detectors.slices import Slices

Sliced = list[tuple[dict[str, float], dict[str, dict[str, float]]]]
"Per step: metrics of the whole, metrics by slice."

GROUPS, SIZE = 32, 8
MEANS = ("response_length_mean", "entropy_mean", "rep4_mean")
COUNTED = {"accuracy": SIZE, "truncated_frac": SIZE, "repetition_frac": SIZE, "zero_variance_frac": 1}
"Shares, and how many items a group adds to them."
LEVEL = {**traces.LEVEL, "infra_failed_frac": -5.0}
STEPS = 3000


def run(paths: Sequence[traces.Paths], steps: int, seed: int, noise: traces.Noise) -> Sliced:
    """One task per element of `paths`."""
    rng = random.Random(seed)
    tasks = range(len(paths))
    names = (*MEANS, *COUNTED)
    sources = [{name: traces.ar1(rng, noise) for name in names} for _ in tasks]
    sampling = traces.ar1(rng, traces.Noise(phi=0.0, tails=noise.tails))
    offset = [_offset(rng) for _ in tasks]
    rows: Sliced = []
    for step in range(steps):
        groups = Counter(rng.choices(tasks, k=GROUPS))
        slices: dict[str, dict[str, float]] = {}
        for task in tasks:
            levels = {}
            for name in names:
                move = paths[task][name](step) if name in paths[task] else 0.0
                levels[name] = LEVEL[name] + offset[task].get(name, 0.0) + move
                levels[name] += traces.NOISE[name] * next(sources[task][name])
            if groups[task]:
                slices[f"task{task:02}"] = _measured(rng, levels, groups[task], sampling)
        rows.append((_whole(slices), slices))
    return rows


def _offset(rng: random.Random) -> dict[str, float]:
    """What makes a task another than the next: right answers from 12 to 88 %, 150 to 1,000 tokens."""
    return {
        "accuracy": rng.uniform(-2.0, 2.0), "response_length_mean": rng.uniform(-1.0, 0.9),
        "rep4_mean": rng.uniform(-0.5, 0.5), "entropy_mean": rng.uniform(-0.5, 0.5),
    }  # fmt: skip


def _measured(rng: random.Random, levels: dict[str, float], groups: int, sampling: Iterator[float]) -> dict[str, float]:
    """The step of one slice. The noise of traces.NOISE belongs to 256 responses; so few have more."""
    row: dict[str, float] = {}
    more = math.sqrt(max(0.0, GROUPS / groups - 1))
    for name in MEANS:
        x = levels[name] + traces.NOISE[name] * more * next(sampling)
        row[name] = math.exp(x) if name in traces.POSITIVE else 1 / (1 + math.exp(-x))
        row[f"{name}.n"] = float(groups * SIZE)
    for name, items in COUNTED.items():
        p, n = 1 / (1 + math.exp(-levels[name])), groups * items
        row[name] = sum(rng.random() < p for _ in range(n)) / n
        row[f"{name}.n"] = float(n)
    failed = 1 / (1 + math.exp(-LEVEL["infra_failed_frac"]))
    row["infra_failed_frac"] = sum(rng.random() < failed for _ in range(groups * SIZE)) / (groups * SIZE)
    row["infra_failed_frac.n"] = float(groups * SIZE)
    row["reward_mean"] = 2 * row["accuracy"] - 1
    return row


def _whole(slices: dict[str, dict[str, float]]) -> dict[str, float]:
    """Means over all responses (shares of groups: over groups)."""
    row: dict[str, float] = {}
    for name in (*MEANS, *COUNTED, "infra_failed_frac"):
        row[f"{name}.n"] = weight = sum(part[f"{name}.n"] for part in slices.values())
        row[name] = sum(part[name] * part[f"{name}.n"] for part in slices.values()) / weight
    row["reward_mean"] = 2 * row["accuracy"] - 1
    return row


def healthy(k: int, steps: int, seed: int, noise: traces.Noise) -> Sliced:
    """The healthy families in turn, one per task."""
    families = [traces.FAMILIES[(task + seed) % len(traces.FAMILIES)] for task in range(k)]
    return run([traces.healthy_paths(family, steps) for family in families], steps, seed, noise)


def failing(kind: str, k: int, alone: bool, onset: int, steps: int, seed: int) -> Sliced:
    """A failure of the first task alone, or of all: paths of traces.incident, as far as a slice has the metrics."""

    def ramp(start: float, span: float, height: float) -> Callable[[int], float]:
        return lambda step: height * min(1.0, max(0.0, (step - start) / span))

    lost: traces.Paths = {"accuracy": ramp(onset + 2, 12, -4.0), "zero_variance_frac": ramp(onset + 4, 12, 4.0)}
    kinds: dict[str, traces.Paths] = {
        "repetition": {
            **lost, "rep4_mean": ramp(onset, 15, 4.5), "repetition_frac": ramp(onset, 15, 6.0),
            "response_length_mean": ramp(onset, 15, 0.9), "truncated_frac": ramp(onset, 15, 5.0),
        },
        "length": {**lost, "response_length_mean": ramp(onset, 15, -4.2), "entropy_mean": ramp(onset, 15, 1.0)},
        "decay": {"accuracy": ramp(onset, 200, -1.5), "entropy_mean": ramp(onset, 200, 0.9)},
    }  # fmt: skip
    fails = kinds[kind]
    return run([fails, *([{}] if alone else [fails]) * (k - 1)], steps, seed, traces.Noise())


def findings(rows: Sliced) -> tuple[list[Finding], list[Finding]]:
    """Of the whole and of the slices, infos left out."""
    whole = Suite()
    slices = Slices(whole)
    for step, (row, parts) in enumerate(rows):
        whole.update(step, row)
        slices.update(step, parts)
    return [f for f in whole.findings() if f.severity != "info"], slices.findings()


def false_alarms(scale: int) -> None:
    for k in (1, 4, 16):
        count: Counter[str] = Counter()
        of_whole, steps, seed = 0, 0, 0
        for phi in (0.0, 0.6, 0.8):
            for tails in traces.TAILS:
                for _ in range(2 * scale):
                    rows = healthy(k, STEPS, 1000 * k + seed, traces.Noise(phi=phi, tails=tails))
                    seed, steps = seed + 1, steps + len(rows)
                    whole, slices = findings(rows)
                    of_whole += len(whole)
                    count.update(f"{f.rule} {f.severity}" for f in slices if f.inhibited_by is None)
        rate = 1000 * count.total() / steps
        print(f"healthy, {k} slices: {steps} steps, {rate:.3f} alarms of slices per 1,000 steps of the run", end=" ")
        print(f"{dict(count) or ''}; of the whole {of_whole}", flush=True)


def recall(scale: int) -> None:
    signature = {"length": "length_collapse", "repetition": "repetition_collapse", "decay": "exploration_decay"}
    for k in (4, 16):
        for kind, named in signature.items():
            for alone in (True, False):
                lags, whole_found, others, runs = [], 0, 0, 0
                for onset in (30, 200):
                    for seed in range(4 * scale):
                        steps = onset + (220 if kind == "decay" else 60)
                        whole, slices = findings(failing(kind, k, alone, onset, steps, 100 * onset + seed))
                        runs += 1
                        whole_found += any(f.signature == named for f in whole)
                        first = [
                            f.step_detected - onset for f in slices if f.slice == "task00" and f.signature == named
                        ]
                        lags += first[:1]
                        others += sum(f.inhibited_by is None for f in slices if not (alone and f.slice == "task00"))
                which = "one task of" if alone else "all of"
                print(
                    f"{kind}, {which} {k}: on its slice {len(lags)} of {runs}, median lag "
                    f"{median(lags) if lags else '-'}; on the whole run {whole_found}; "
                    f"{'alarms of other slices' if alone else 'alarms of slices not dimmed'} {others / runs:.2f} a run",
                    flush=True,
                )


def main(argv: Sequence[str]) -> int:
    scale = int(argv[0]) if argv else 1
    false_alarms(scale)
    recall(scale)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
