"""`regimescope runs [ROOT] [--json]`: the runs below a root, each with its status, last step, verdict and open alerts.

ROOT is else $REGIMESCOPE_ROOT, else ./runs. Reads the segments into a private index, so it works beside a running
server and without one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from regimescope.monitor import query
from regimescope.monitor.places import default_root
from regimescope.monitor.private import read_root
from regimescope.monitor.service import Monitor
from regimescope.monitor.ui.verdict import of_slice, open_alerts, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run of the list; also one object of `--json`."""

    path: str
    "Folder below the root."
    status: str
    "running | ended | crashed | imported"
    last_step: int | None
    verdict: str
    "HEALTHY, WATCH, COLLAPSING, …: the word of the page's header."
    alerts: list[str]
    "Open alerts, worst first: `critical length_collapse`."


def main(argv: list[str]) -> int:
    """Print the list; exit code 0. Raises RunError when there is no such folder."""
    options = _parser().parse_args(argv)
    root = default_root(options.root)
    with read_root(root, rollouts=False) as monitor:
        lines, problems = list_lines(monitor), monitor.problems
    if options.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        print(_table(lines) if lines else f"no runs below {root}")
    for path, why in problems.items():
        print(f"not read: {path}: {why}", file=sys.stderr)
    return 0


def list_lines(monitor: Monitor) -> list[RunLine]:
    """What the list shows, the run that wrote last first."""
    found = []
    with monitor.store.cursor() as con:
        for run in query.list_runs(con):
            live, alerts = monitor.liveness(run.run_key), query.alerts(con, run.run_key)
            shown = verdict(run, live, alerts, monitor.warming(run.run_key))
            words = f"{shown.word}, {shown.beside}" if shown.beside else shown.word
            active = [
                f"{alert.severity} {alert.signature}{of_slice(alert)}" for alert in open_alerts(alerts, live.last_step)
            ]
            found.append(
                RunLine(path=run.path, status=run.status, last_step=run.last_step, verdict=words, alerts=active)
            )
    return found


def _table(lines: list[RunLine]) -> str:
    head = ("run", "status", "last step", "verdict", "open alerts")
    rows = [
        (x.path, x.status, "-" if x.last_step is None else str(x.last_step), x.verdict, ", ".join(x.alerts) or "-")
        for x in lines
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="regimescope runs", description="List the runs below a root.")
    parser.add_argument(
        "root", nargs="?", metavar="ROOT", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)"
    )
    parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")
    return parser
