"""Peers in environments of their own, benchmarks/.venv-<name>: they never enter that of the package or of its tests.

    Environment(name="trl", what="TRL", packages=("torch", "trl"), size="a minute and 1.5 GB")
    .python()                 the interpreter; the first call builds the environment
    .run(module, *arguments)  a module of this folder under it, with our own sources importable; its standard output

Pins: benchmarks/<name>-constraints.txt; other pins, and the environment is built again. Building needs a package index
that pip can reach; afterwards no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks._runs import BenchmarkError

FOLDER = Path(__file__).parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One of them."""

    name: str
    "Of the folder and of the pins."
    what: str
    "What is in it, for people."
    packages: tuple[str, ...]
    "Installed one after the other, under the pins."
    size: str
    "Time and room that building takes, for people."

    @property
    def folder(self) -> Path:
        return FOLDER / f".venv-{self.name}"

    @property
    def _constraints(self) -> Path:
        return FOLDER / f"{self.name}-constraints.txt"

    def python(self) -> Path:
        """The interpreter. Raises BenchmarkError when the environment cannot be built."""
        interpreter = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        stamp = self.folder / ".stamp"
        wanted = hashlib.sha256(self._constraints.read_bytes()).hexdigest()
        if not (interpreter.exists() and stamp.exists() and stamp.read_text() == wanted):
            print(f"installing {self.what} into {self.folder} (once; about {self.size})", file=sys.stderr)
            venv.create(self.folder, clear=True, with_pip=True)
            for package in self.packages:
                self._install(interpreter, package)
            stamp.write_text(wanted)
        return interpreter

    def run(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Standard output of `benchmarks.<module>`, run in it on one thread with our sources importable; its standard
        error passes through. Raises BenchmarkError with the exit code when it fails."""
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(
            [str(self.python()), "-m", f"benchmarks.{module}", *arguments],
            cwd=FOLDER.parent,
            env={**os.environ, **offline, **ONE_THREAD, **(env or {}), "PYTHONPATH": "src"},
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode != 0:
            raise BenchmarkError(f"{module} ended with {done.returncode} in {self.folder}; its own words are above")
        return done.stdout

    def _install(self, interpreter: Path, package: str) -> None:
        command = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*command, "-c", str(self._constraints), package], capture_output=True, text=True)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with {done.returncode}"
            raise BenchmarkError(
                f"cannot install {package} into {self.folder}: {reason}. Building it needs a package index that pip "
                "can reach; run the benchmark once with a network, later runs need none"
            )
