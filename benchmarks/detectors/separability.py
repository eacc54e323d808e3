"""What accuracy alone can tell of a decay while it happens: `./dev bench detectors separability FOLDER ...`.

FOLDER holds runs of the lab, as for the scorecard. The label of a decay looks at the end of a run; a rule sees only
what came before. So this takes the most that a rule on accuracy could reach: for means of WINDOWS points and POINTS
points in a row, every threshold on the share that is lost of the best mean so far, and for each number of healthy runs
alarmed the best recall over all of them. Chosen on these very runs, hence an upper bound for rules of this kind.

Second witnesses: how each other metric changed from the top of accuracy to the largest loss, in decays of MILD size
beside healthy runs that lost as much for a while; the area under the curve is .5 where it tells nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks._runs import BenchmarkError
from benchmarks.scorecard import cases
from benchmarks.scorecard.cases import Case

WINDOWS = (1, 3, 5, 9, 15, 20, 30)
POINTS = (1, 2, 3, 4, 6, 8, 10, 15, 20)
FIRST = 8
"Accuracies before the first judgement, as in the rules."
ALARMED = (0, 1, 2, 5, 10, 20, 40)
"Healthy runs."
MILD = (0.08, 0.4)
"Share that a mean of SPAN points lost."
SPAN = 9
"Points of the means, at the top and at the loss."
LEAST = 8
"Runs of each kind that must have logged a metric."


def main(argv: Sequence[str]) -> int:
    if not argv:
        print(__doc__)
        return 2
    try:
        runs = [run for folder in argv for run in cases.lab(Path(folder))]
    except BenchmarkError as error:
        print(f"separability: {error}", file=sys.stderr)
        return 2
    decays, healthy = groups(runs)
    if not decays or not healthy:
        print("separability: needs runs that decay and runs that are healthy", file=sys.stderr)
        return 2
    rows = sum(len(run.rows) for run in healthy)
    print(f"{len(decays)} runs with a decay, {len(healthy)} healthy ones of {rows} rows")
    for alarmed, recall, rule in frontier(decays, healthy):
        print(f"{alarmed:3} healthy runs alarmed ({alarmed / len(healthy):6.1%}): {recall:2} of {len(decays)}, {rule}")
    told = witnesses(decays, healthy)
    print(f"{len(told)} other metrics, area under the curve, farthest from .5: " + ", ".join(told[:8]))
    for run in decays:
        left = len(run.rows) - 1 - next(i for i, row in enumerate(run.rows) if row["step"] >= run.onsets["decay"])
        print(f"{run.name:32} points after the onset {left:3}, lost at the end {lost(run, 9)[-1]:.0%}")
    return 0


def groups(runs: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Runs with a decay, healthy runs."""
    return [run for run in runs if "decay" in run.onsets], [run for run in runs if run.state == "healthy"]


def frontier(decays: Sequence[Case], healthy: Sequence[Case]) -> Iterator[tuple[int, int, str]]:
    """Healthy runs alarmed at most, decays found at best, and by which mean, points and threshold."""
    tried = []
    for window in WINDOWS:
        for points in POINTS:
            quiet = sorted((most(run, window, points) for run in healthy), reverse=True)
            found = [most(run, window, points, run.onsets["decay"]) for run in decays]
            tried.append((window, points, quiet, found))
    for alarmed in ALARMED:
        if alarmed < len(healthy):
            yield alarmed, *max(_at(alarmed, *one) for one in tried)


def _at(alarmed: int, window: int, points: int, quiet: Sequence[float], found: Sequence[float]) -> tuple[int, str]:
    threshold = quiet[alarmed]
    rule = f"a mean of {window} below its best by more than {threshold:.0%} for {points}"
    return sum(share > threshold for share in found), rule


def most(run: Case, window: int, points: int, since: int = 0) -> float:
    """Largest share that was lost at so many points in a row, the last of them at `since` or later."""
    shares = lost(run, window)
    steps = [int(row["step"]) for row in run.rows if "accuracy" in row]
    ends = range(points - 1, len(shares))
    return max((min(shares[i - points + 1 : i + 1]) for i in ends if steps[i] >= since), default=0.0)


def lost(run: Case, window: int) -> list[float]:
    """At each point, the share that the mean of the last `window` accuracies lost of the best such mean so far."""
    values = [row["accuracy"] for row in run.rows if "accuracy" in row]
    shares, best = [], 0.0
    for i in range(len(values)):
        last = values[max(0, i + 1 - window) : i + 1]
        mean = sum(last) / len(last)
        if i + 1 >= min(window, FIRST):
            best = max(best, mean)
        shares.append(1 - mean / best if best > 0 and i >= FIRST else 0.0)
    return shares


def witnesses(decays: Sequence[Case], healthy: Sequence[Case]) -> list[str]:
    """Metric and area, the farthest from .5 first."""
    kinds = [[change for run in runs if (change := changes(run))] for runs in (decays, healthy)]
    areas = []
    for name in sorted({name for kind in kinds for change in kind for name in change}):
        some, others = ([change[name] for change in kind if name in change] for kind in kinds)
        if min(len(some), len(others)) >= LEAST:
            wins = sum((a > b) + 0.5 * (a == b) for a in some for b in others)
            areas.append((wins / len(some) / len(others), name))
    return [f"{name} {area:.2f}" for area, name in sorted(areas, key=lambda one: -abs(one[0] - 0.5))]


def changes(run: Case) -> dict[str, float]:
    """By metric, its median of SPAN points at the largest loss, after the onset in a decay, minus that at the top
    before it. Empty where the loss is not MILD."""
    rows = [row for row in run.rows if "accuracy" in row]
    shares = [
        share if row["step"] >= run.onsets.get("decay", 0) else 0.0
        for row, share in zip(rows, lost(run, SPAN), strict=True)
    ]
    end = max(range(len(shares)), key=shares.__getitem__)
    if not MILD[0] < shares[end] < MILD[1]:
        return {}
    means = [sum(row["accuracy"] for row in rows[max(0, i + 1 - SPAN) : i + 1]) for i in range(end + 1)]
    top = max(range(min(SPAN - 1, end), end + 1), key=means.__getitem__)
    before, after = rows[max(0, top + 1 - SPAN) : top + 1], rows[max(0, end + 1 - SPAN) : end + 1]
    names = {name for row in after for name in row if not name.endswith(".n")} - {"accuracy", "reward_mean", "step"}
    pairs = {name: [[row[name] for row in part if name in row] for part in (before, after)] for name in names}
    return {name: median(b) - median(a) for name, (a, b) in pairs.items() if len(a) > 1 and len(b) > 1}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
