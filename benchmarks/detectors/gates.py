"""False alarms on generated healthy runs, recall and lag on generated failures: `./dev bench detectors gates [SCALE]`.

SCALE 1 is 162,000 healthy steps and 36 failures per kind and band of onsets; a release takes 10. Warnings and
criticals count.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.detectors import side_traces, traces
from benchmarks.detectors.given_runs import accuracy_half

from regimescope.detectors import Finding, Suite

SIGNATURE = {
    "length": "length_collapse", "repetition": "repetition_collapse", "decay": "exploration_decay",
    "entropy": "entropy_collapse", "runaway": "length_runaway", "zero": "zero_signal",
}  # fmt: skip
SLOW = ("decay", "entropy")
SIDE_SIGNATURE = {"mismatch": "engine_mismatch", "heldout": "heldout_gap", "push": "negative_push"}
ONSETS = {"3 to 40": (3, 5, 8, 12, 20, 40), "200 to 350": (200, 230, 260, 290, 320, 350)}
STEPS = 3000


def findings(rows: traces.Run) -> list[Finding]:
    """Warnings and criticals; `step_detected` is where an alert became one, not where it opened as an info."""
    suite = Suite()
    warned: dict[tuple[str, int], int] = {}
    for step, row in enumerate(rows):
        for finding in suite.update(step, row):
            if finding.severity != "info":
                warned.setdefault((finding.rule, finding.ordinal), step)
    found = [finding for finding in suite.findings() if finding.severity != "info"]
    return [replace(finding, step_detected=warned[finding.rule, finding.ordinal]) for finding in found]


def false_alarms(scale: int) -> None:
    seed = 0  # another noise for every run
    for phi in (0.0, 0.6, 0.8):
        for tails in traces.TAILS:
            count: Counter[str] = Counter()
            steps = 0
            for family in traces.FAMILIES * scale:
                noise = traces.Noise(phi=phi, tails=tails)
                rows = side_traces.with_sides(traces.healthy(family, STEPS, seed, noise), family, seed, noise)
                seed += 1
                steps += len(rows)
                count.update(f"{finding.rule} {finding.severity}" for finding in findings(rows))
            rate = 1000 * count.total() / steps
            print(f"healthy, phi {phi}, {tails:6}: {steps} steps, {rate:.3f} alarms per 1,000 {dict(count) or ''}")


def recall(scale: int) -> None:
    for kind, signature in SIGNATURE.items():
        for band, onsets in ONSETS.items():
            lags, leads, early, runs = [], [], 0, 0
            for onset in onsets:
                for seed in range(6 * scale):
                    rows = traces.incident(kind, onset, onset + (220 if kind in SLOW else 80), 1000 * onset + seed)
                    found = findings(rows)
                    runs += 1
                    early += any(finding.step_detected < onset for finding in found)
                    named = [f.step_detected for f in found if f.signature == signature and f.step_detected >= onset]
                    lags += [named[0] - onset] if named else []
                    half = accuracy_half([{"step": step, **row} for step, row in enumerate(rows)])
                    if half is not None and found:
                        leads.append(half - min(finding.step_detected for finding in found))
            lead = f"{median(leads):.0f}" if leads else "-"
            print(
                f"{kind}, onset {band}: recall {len(lags) / runs:.3f} of {runs}, "
                f"median lag {median(lags):.0f} (largest {max(lags)}), "
                f"median lead of the first warning over half of the accuracy {lead}, before the onset {early}"
            )


def side_recall(scale: int) -> None:
    """Failures that the metrics of side_traces show, and nothing else; `heldout` fails over 80 steps."""
    for kind, signature in SIDE_SIGNATURE.items():
        for band, onsets in ONSETS.items():
            lags, early, runs = [], 0, 0
            for onset in onsets:
                for seed in range(6 * scale):
                    rows = side_traces.side_incident(kind, onset, onset + 120, 1000 * onset + seed)
                    found = [f.step_detected for f in findings(rows) if f.signature == signature]
                    runs += 1
                    early += any(step < onset for step in found)
                    lags += [step - onset for step in found if step >= onset][:1]
            lag = f"{median(lags):.0f} (largest {max(lags)})" if lags else "-"
            print(f"{kind}, onset {band}: recall {len(lags) / runs:.3f} of {runs}, median lag {lag}, early {early}")


def main(argv: Sequence[str]) -> int:
    scale = int(argv[0]) if argv else 1
    false_alarms(scale)
    recall(scale)
    side_recall(scale)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
