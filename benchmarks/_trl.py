"""TRL in an environment of its own, benchmarks/.venv-trl: the peer that our losses and our trainer are compared with.

    python()                 the interpreter; the first call builds the environment (about a minute, 1.5 GB)
    run(module, *arguments)  a module of this folder under it, with our own sources importable; its standard output

TRL never enters the environment of the package or of its tests. Pins: benchmarks/trl-constraints.txt; other pins, and
the environment is built again. Building needs a package index that pip can reach; afterwards no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks._runs import BenchmarkError

FOLDER = Path(__file__).parent
ENVIRONMENT = FOLDER / ".venv-trl"
CONSTRAINTS = FOLDER / "trl-constraints.txt"
STAMP = ENVIRONMENT / ".stamp"
INTERPRETER = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python() -> Path:
    """The interpreter that has TRL. Raises BenchmarkError when the environment cannot be built."""
    wanted = hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    if INTERPRETER.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return INTERPRETER
    print(f"installing TRL into {ENVIRONMENT} (once; about a minute and 1.5 GB)", file=sys.stderr)
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    _install("torch")  # first and alone: pip's configured index decides which build it is
    _install("trl")
    STAMP.write_text(wanted)
    return INTERPRETER


def run(module: str, *arguments: str) -> str:
    """Standard output of `benchmarks.<module>`, run in that environment on one thread with our sources importable; its
    standard error passes through. Raises BenchmarkError with the exit code when it fails."""
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    done = subprocess.run(
        [str(python()), "-m", f"benchmarks.{module}", *arguments],
        cwd=FOLDER.parent,
        env={**os.environ, **offline, **threads, "PYTHONPATH": "src"},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{module} ended with {done.returncode} in {ENVIRONMENT}; its own words are above")
    return done.stdout


def _install(package: str) -> None:
    command = [str(INTERPRETER), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "-c", str(CONSTRAINTS), package], capture_output=True, text=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with {done.returncode}"
        raise BenchmarkError(
            f"cannot install {package} into {ENVIRONMENT}: {reason}. Building it needs a package index that pip can "
            "reach; run the benchmark once with a network, later runs need none"
        )


if __name__ == "__main__":
    try:
        print(python())
    except BenchmarkError as error:
        sys.exit(f"bench: {error}")
