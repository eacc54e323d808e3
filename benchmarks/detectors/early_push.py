"""How often the gradient norm and KL are far above the first updates.

`python -m benchmarks.detectors.early_push FOLDER`, FOLDER as for `runs`. Per outcome (accuracy half gone for good;
healthy by the manifest; the rest) the runs in which each metric fulfils the condition of `early_push`, and in how many
before accuracy was half gone. It is why the rule only adds to the evidence of others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detectors.given_runs import accuracy_half, read_outcomes, read_rows

from regimescope.detectors import load_rules
from regimescope.detectors.declared import Declared
from regimescope.detectors.early import EarlyPush
from regimescope.detectors.point import Point


def first_steps(rows: Sequence[dict[str, float]]) -> dict[str, int]:
    """Evidence to the first step that has it."""
    push, point, found = EarlyPush(load_rules()["early_push"]), Point(Declared()), {}
    point.updated = False
    for row in rows:
        point.begin(int(row["step"]), row)
        point.updated = point.updated or ("grad_norm" in row and row.get("updates", 1.0) > 0)
        for name in push.update(point):
            found.setdefault(name, point.step)
    return found


def main(argv: Sequence[str]) -> int:
    if not argv:
        print(__doc__)
        return 2
    folder = Path(argv[0])
    outcomes, runs, counts = read_outcomes(folder / "MANIFEST.tsv"), Counter[str](), Counter[tuple[str, str]]()
    for path in sorted(folder.glob("*.csv")):
        rows = read_rows(path)
        half, healthy = accuracy_half(rows), outcomes.get(path.stem, "").startswith("healthy")
        outcome = "collapse" if half is not None else "healthy" if healthy else "other"
        runs[outcome] += 1
        for name, step in first_steps(rows).items():
            counts[outcome, name] += 1
            counts[outcome, f"{name}, before"] += half is not None and step < half
    for outcome, number in runs.items():
        print(f"{outcome} ({number} runs):", {name: n for (which, name), n in counts.items() if which == outcome})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
