"""TRL in an environment of its own, benchmarks/.venv-trl: the peer that our losses and our trainer are compared with.

`python()` is its interpreter, `run(module, *arguments)` the output of a module of this folder under it; see
`_environment.py`. Pins: benchmarks/trl-constraints.txt.
"""

from __future__ import annotations

import sys

from benchmarks._environment import FOLDER, Environment
from benchmarks._runs import BenchmarkError

__all__ = ["FOLDER", "python", "run"]

# torch first and alone: pip's configured index decides which build it is
TRL = Environment(name="trl", what="TRL", packages=("torch", "trl"), size="a minute and 1.5 GB")
python, run = TRL.python, TRL.run

if __name__ == "__main__":
    try:
        print(python())
    except BenchmarkError as error:
        sys.exit(f"bench: {error}")
