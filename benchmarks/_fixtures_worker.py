"""Writes one fixture of `import_fixtures` in the peers' environment: `_fixtures_worker NAME FOLDER`.

What was logged goes to truth.json, run -> metric -> [[step, number], ...].
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

MODULES = {
    "tensorboard": "tensorboard_events",
    "wandb": "wandb_offline",
    "trackio": "trackio_sqlite",
    "mlflow": "mlflow_stores",
    "mlflow_files": "mlflow_stores",
}


def main(name: str, where: str) -> None:
    folder = Path(where).resolve()
    write = getattr(import_module(f"benchmarks._fixtures.{MODULES[name]}"), f"write_{name}")
    (folder / "truth.json").write_text(json.dumps(write(folder), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
