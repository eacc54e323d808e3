"""What the detectors say about recorded runs: `./dev bench detectors runs FOLDER [RUN ...]`.

FOLDER holds run folders of our own trainer (segments/), or one CSV per run (canonical metric names, a `step` column)
and maybe MANIFEST.tsv (run, outcome). Per run: each alert with its severity, onset and detection step, driver and
bound, and the lead over the step at which accuracy is half gone for good.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detectors import run_folders

from regimescope.detectors import Event, Finding, Suite
from regimescope.detectors.declared import BOUNDS

OBJECTIVES = ("dispo", "cispo", "dapo")


def main(argv: Sequence[str]) -> int:
    if not argv:
        print(__doc__)
        return 2
    folder = Path(argv[0])
    if run_folders.is_root(folder):
        for run in run_folders.read_folders(folder):
            if len(argv) < 2 or run.path in argv[1:]:
                rows = [{**step.metrics, "step": float(step.step)} for step in run.steps]
                _print(run.path, "ended" if run.ended else "not ended", rows, run_folders.findings(run.steps))
        return 0
    outcomes = read_outcomes(folder / "MANIFEST.tsv")
    for path in sorted(folder.glob("*.csv")):
        if len(argv) > 1 and path.stem not in argv[1:]:
            continue
        rows = read_rows(path)
        _print(path.stem, outcomes.get(path.stem, "")[:60], rows, replay(rows, objective_of(path.stem)))
    return 0


def _print(name: str, outcome: str, rows: Sequence[dict[str, float]], findings: Sequence[Finding]) -> None:
    half = accuracy_half(rows)
    print(f"{name:26} {outcome}; {len(rows)} rows, accuracy half gone at {half}")
    for finding in findings:
        lead = "" if half is None else f" lead {half - finding.step_detected}"
        print(f"    {line(finding)}{lead}")


def line(finding: Finding) -> str:
    steps = f"onset {finding.step_onset:3} found {finding.step_detected:3} {finding.state:8}"
    cause = f"driver {finding.driver or '-':2} {finding.remedy.bound or '-'} dimmed by {finding.inhibited_by or '-'}"
    return f"{finding.severity:8} {finding.rule:20} {steps} {cause}"


def read_outcomes(path: Path) -> dict[str, str]:
    """Run to outcome, from the first two columns; empty without the file."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return {fields[0]: fields[1] for line in lines if len(fields := line.split("\t")) > 1}


def read_rows(path: Path) -> list[dict[str, float]]:
    """One mapping per step; empty cells are absent. A log without bucket tokens in its first rows made no update
    there: absent as well."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [_without_update(row) for row in rows]


def _without_update(row: dict[str, float]) -> dict[str, float]:
    if row.get("grad_norm", 1.0) != 0 or row.get("kl_step", 1.0) != 0:
        return row
    kept = {
        name: value for name, value in row.items() if name not in ("grad_norm", "kl_step") and not name.startswith("R")
    }
    return {**kept, "updates": 0.0}


def objective_of(name: str) -> str:
    return next((objective for objective in OBJECTIVES if objective in name), "dispo")


def replay(rows: Sequence[dict[str, float]], objective: str) -> list[Finding]:
    """All findings of a fresh suite; bounds in the rows become start and bounds_changed events."""
    suite = Suite()
    before: dict[str, float] | None = None
    for row in rows:
        step = int(row["step"])
        bounds = {name: row[name] for name in BOUNDS if name in row}
        events = []
        if before is None or (bounds and bounds != before):
            kind = "start" if before is None else "bounds_changed"
            events.append(
                Event(kind=kind, step=step, data={"objective": objective, "ratio_source": "behaviour", **bounds})
            )
        before = bounds
        suite.update(step, row, events)
    return suite.findings()


def accuracy_half(rows: Sequence[dict[str, float]]) -> int | None:
    """First step from which the 3-step mean of accuracy stays below half of the best so far (first value or an earlier
    mean), for good."""
    pairs = [(int(row["step"]), row["accuracy"]) for row in rows if "accuracy" in row]
    best, since = pairs[0][1] if pairs else 0.0, None
    for i in range(2, len(pairs)):
        mean = sum(value for _, value in pairs[i - 2 : i + 1]) / 3
        if mean >= best / 2:
            since = None
        elif since is None:
            since = pairs[i][0]
        best = max(best, mean)
    return since


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
