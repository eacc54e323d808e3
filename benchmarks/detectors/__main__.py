"""What the detectors say about a folder of recorded runs (CSV): alerts, drivers, leads."""

from __future__ import annotations

import sys

from benchmarks.detectors.given_runs import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
