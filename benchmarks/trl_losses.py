"""Losses, gradients and clip fractions of our objectives against TRL's own code: golden fixture and random batches.

    ./dev bench trl_losses

A real GRPOTrainer of TRL (benchmarks/trl-constraints.txt) pads, masks, counts and evaluates `_compute_loss`, its
correction for the engine and its advantages included; only the tokens and their log-probabilities are given. Per case
20 seeded batches (ragged rows, both signs, A = 0, ratios up to thousands) and the golden fixture, in float64; the
gradient is that with respect to logp_new. A difference of loss or gradient over 1e-6 of the largest number, or of a
clip fraction over 1e-6, is DIFFER, and the exit code 1.

Where TRL divides by something else, its divisor is handed to our loss as `token_weight`, and the case is marked with *:
- The token mean where a rollout is cut into several updates: TRL divides by the mean number of tokens of these updates,
  we by the number of the update itself.
- Rows without a token: TRL counts them as sequences, we do not.
Settings that make TRL ours: `use_bias_correction_kl=False` (its default multiplies the KL term by r); `epsilon_high` of
CISPO is the cap itself, and its clip fraction leaves A < 0 out, as ours does here; `delta` is the dual clip. TRL's
truncation of the mismatch can also end below, ours has no lower end. TRL does not cut log-ratios at 20; no batch comes
near. Not compared, because we have no such objective: sapo, vespo, luspo, entropy masks and bonuses, off-policy masks.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import _trl
from benchmarks._runs import BenchmarkError, table

TOLERANCE = 1e-6
HEAD = ("objective", "losses", "tokens clipped", "loss, max diff", "gradient, max diff", "relative", "clip fraction")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench trl_losses", description="Our losses against TRL's own code.")
    parser.parse_args(argv)
    root = _trl.FOLDER.parent
    golden, model = root / "tests/trainer/objectives_golden.json", root / "trainer/warm/A"
    try:
        lines = _trl.run("_trl_losses_worker", str(golden), str(model)).splitlines()
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    rows, good = [], True
    for result in map(json.loads, lines):
        agrees = result["relative"] <= TOLERANCE and (result["clip"] or 0.0) <= TOLERANCE  # NaN does not
        good &= agrees
        share = f"{result['clipped'] / result['tokens']:.1%}" if result["tokens"] else "-"
        figures = [f"{result[name]:.1e}" for name in ("loss", "gradient", "relative")]
        figures.append("-" if result["clip"] is None else f"{result['clip']:.1e}")
        rows.append([result["name"], str(result["compared"]), share, *figures, "agree" if agrees else "DIFFER"])
    print(table((*HEAD, "verdict"), rows))
    print(f"all within {TOLERANCE:.0e}: {'yes' if good else 'NO'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
