"""Detectors: `runs FOLDER` replays recorded CSVs, `gates` counts false alarms and recall, `slices` the same on env
slices, `golden` compares recorded alerts, `tapes` records what the detectors were given in a run, `separability` says
what accuracy alone can tell of a decay."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.detectors import gates, given_runs, golden, separability, slices, tapes

COMMANDS = {
    "runs": given_runs.main,
    "gates": gates.main,
    "slices": slices.main,
    "golden": golden.main,
    "tapes": tapes.main,
    "separability": separability.main,
}


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] not in COMMANDS:
        print(f"{__doc__}\nusage: ./dev bench detectors {' | '.join(COMMANDS)} [...]", file=sys.stderr)
        return 2
    return COMMANDS[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
