"""Golden alerts: `python -m benchmarks.detectors.golden` shows what differs from the recorded ones, `--write` records.

They lie in tests/golden/detectors/expected.csv. A change of rules comes with this difference.

Only warnings and criticals are golden. `first`, `last`: the window of the detection step.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from benchmarks.detectors import run_folders, tapes
from benchmarks.detectors.given_runs import objective_of, read_rows, replay

from regimescope.detectors import Finding

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "detectors"
WINDOW = 2


@dataclass(frozen=True, order=True)
class Golden:
    """One expected alert."""

    run: str
    "Name of the CSV or tape."
    rule: str
    "Rule of the finding."
    signature: str
    "Its signature."
    severity: str
    "At the end of the run."
    driver: str
    "R1 .. R4 or empty."
    bound: str
    "Bound of the remedy at the end of the run, or empty."
    first: int
    "Earliest detection step allowed."
    last: int
    "Latest detection step allowed."


def traces() -> list[Path]:
    """CSVs of logs, and tapes of our own trainer's runs with buckets, bounds and events."""
    return sorted([*(path for path in FOLDER.glob("*.csv") if path.stem != "expected"), *FOLDER.glob("*.jsonl")])


def alerts(path: Path) -> list[Golden]:
    """What the detectors say about one recorded run, info left out."""
    return sorted(_golden(path.stem, finding) for finding in findings(path) if finding.severity != "info")


def findings(path: Path) -> list[Finding]:
    """All of them, by detection."""
    if path.suffix == ".jsonl":
        return run_folders.findings(tapes.read(path))
    return replay(read_rows(path), objective_of(path.stem))


def _golden(run: str, finding: Finding) -> Golden:
    return Golden(
        run=run, rule=finding.rule, signature=finding.signature, severity=finding.severity,
        driver=finding.driver or "", bound=finding.remedy.bound or "",
        first=max(0, finding.step_detected - WINDOW), last=finding.step_detected + WINDOW,
    )  # fmt: skip


def expected() -> list[Golden]:
    with (FOLDER / "expected.csv").open(encoding="utf-8", newline="") as file:
        return [
            Golden(**{**row, "first": int(row["first"]), "last": int(row["last"])})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


def main(argv: Sequence[str]) -> int:
    found = [alert for path in traces() for alert in alerts(path)]
    known = expected() if (FOLDER / "expected.csv").exists() else []
    for sign, rows in (("-", sorted(set(known) - set(found))), ("+", sorted(set(found) - set(known)))):
        for row in rows:
            print(sign, *astuple(row))
    if "--write" in argv:
        with (FOLDER / "expected.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(field.name for field in fields(Golden))
            writer.writerows(astuple(row) for row in found)
    return 0 if set(found) == set(known) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
