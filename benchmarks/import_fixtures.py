"""Logs for the tests of import, written by the real writers: TensorBoard, W&B, trackio, mlflow, TRL.

    ./dev bench import_fixtures            writes tests/data/imports anew, with the numbers that were logged beside each

`truth.json` of a folder: what was logged, metric -> [[step, number], ...]. Versions: README.md there.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import _trl
from benchmarks._environment import FOLDER
from benchmarks._loggers import PEERS, QUIET
from benchmarks._runs import BenchmarkError

HERE = FOLDER.parent / "tests" / "data" / "imports"
MOST_BYTES = 200_000
WRITERS = ("tensorboard", "wandb", "trackio", "mlflow", "mlflow_files")
PACKED = ("mlflow.db", "fixtures.db")
"Stored as .gz: the empty tables of mlflow and trackio are larger than what was logged."


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench import_fixtures", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--only", choices=(*WRITERS, "trl"), action="append")
    options = parser.parse_args(argv)
    try:
        for name in options.only or (*WRITERS, "trl"):
            made = _made(name, options.out)
            print(f"{name}: {made:,} bytes", flush=True)
    except BenchmarkError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _made(name: str, out: Path) -> int:
    """Write one folder; its bytes. Raises BenchmarkError: too large."""
    folder = out / name
    with tempfile.TemporaryDirectory(prefix="fixture-") as scratch:
        made = Path(scratch) / name
        made.mkdir()
        if name == "trl":
            _trl.run("_fixtures_trl_worker", str(made))
        else:
            env = {
                **QUIET,
                "MLFLOW_ALLOW_FILE_STORE": "true",
                "TRACKIO_DIR": str(made),
                "WANDB_DIR": str(made),
                "WANDB_HOST": "host",
            }
            PEERS.run("_fixtures_worker", name, str(made), env=env)
        for packed in PACKED:
            if (made / packed).exists():
                data = (made / packed).read_bytes()
                (made / f"{packed}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
                (made / packed).unlink()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    if sum(sizes) > MOST_BYTES:
        raise BenchmarkError(f"{folder} has {sum(sizes):,} bytes: a fixture has {MOST_BYTES:,} at most")
    return sum(sizes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
