"""When early_gap speaks on recorded runs: `python -m benchmarks.detectors.early_gap FOLDER`.

FOLDER holds run folders of our own trainer, or one CSV per run and MANIFEST.tsv. Of the runs whose lower bound of A<0
is above DISPO's 0, unchanged from start to end: the step at which the share of gradient mass that it holds passes the
rule, beside that at which accuracy is half gone, and the largest share at two points in a row. Where a CSV has no
histograms the share is taken from tokens, mean weight and mean ratio of the buckets.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.detectors.given_runs import accuracy_half, read_rows
from benchmarks.detectors.run_folders import is_root, read_folders

from regimescope.detectors import load_rules

BUCKETS = ("R1", "R2", "R3", "R4", "pos_eq1", "neg_eq1")
Run = tuple[str, str, list[dict[str, float]]]
"Name, outcome, rows."


def share(row: dict[str, float]) -> float:
    """Of all gradient mass, what the bounds in force hold on R4 beyond DISPO's."""
    if "R4.dispo_gap" in row:
        return -row["R4.dispo_gap"]
    ratio = row.get("R4.ratio_mean", 1.0)
    masses = [row.get(f"{name}.tokens", 0.0) * row.get(f"{name}.weight_mean", 1.0) for name in BUCKETS]
    held = row.get("R4.tokens", 0.0) * (row.get("R4.weight_mean", ratio) - ratio)
    return held / sum(masses) if sum(masses) else 0.0


def recorded(folder: Path) -> Iterator[Run]:
    with (folder / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):
            moved, lower, ppo = (
                line["bounds_changed_at"] != "-1",
                float(line["eps_low-"]),
                line.get("objective") == "ppo",
            )
            if not moved and lower < 1 and not ppo:
                yield line["run"], list(line.values())[1], read_rows(folder / f"{line['run']}.csv")


def own(root: Path) -> Iterator[Run]:
    for run in read_folders(root):
        rows = [{**step.metrics, "step": float(step.step)} for step in run.steps]
        if all(row.get("neg.w_min", 0.0) > 0 for row in rows):
            yield run.path, "", rows


def main(argv: Sequence[str]) -> int:
    if not argv:
        print(__doc__)
        return 2
    rule, folder = load_rules()["early_gap"], Path(argv[0])
    limit = rule.levels["info"].value
    for name, outcome, rows in own(folder) if is_root(folder) else recorded(folder):
        shares = [share(row) for row in rows][: int(rule.numbers["until"])]
        pairs = [min(two) for two in pairwise(shares)]
        spoke = next((int(row["step"]) for row, pair in zip(rows[1:], pairs, strict=False) if pair > limit), None)
        half = accuracy_half(rows)
        lead = "" if half is None or spoke is None else f", lead {half - spoke}"
        print(f"{name:26} {outcome[:40]:40} speaks at {spoke}, half gone at {half}{lead}; most {max(pairs):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
