"""A real `regimescope serve` for the benchmarks, its JSON route as a client sees it, and a process that records."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
from benchmarks._environment import FOLDER, ONE_THREAD
from benchmarks._runs import BenchmarkError

from regimescope.monitor.endpoint import read_endpoint


@contextlib.contextmanager
def serving(root: Path, cache: Path, **settings: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server of the root, with its index in `cache`: address and process. `settings`: of its environment. Raises
    BenchmarkError."""
    env = {**os.environ, "REGIMESCOPE_CACHE": str(cache), **settings}
    command = [sys.executable, "-m", "regimescope.cli", "serve", str(root), "--port", "0"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", line := process.stdout.readline())
        if found is None:
            raise BenchmarkError(f"the server did not start: {line.strip() or 'see above'}")
        yield found.group(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def recording(run_dir: Path, steps: int, rate: float) -> Iterator[Callable[[], dict[str, Any]]]:
    """A `_trainer_worker` that records so many steps a second. The call that it gives waits for its end and returns
    what it said; it raises BenchmarkError where the worker failed. A worker that is not waited for is ended."""
    command = [sys.executable, "-m", "benchmarks._trainer_worker", str(run_dir), str(steps), str(rate)]
    env = {**os.environ, **ONE_THREAD}
    process = subprocess.Popen(command, cwd=FOLDER.parent, env=env, stdout=subprocess.PIPE, text=True)

    def wait() -> dict[str, Any]:
        said, _ = process.communicate()
        if process.returncode != 0:
            raise BenchmarkError("the process that records failed; its own words are above")
        answer: dict[str, Any] = json.loads(said)
        return answer

    try:
        yield wait
    finally:
        process.kill()
        process.wait()


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """CPU time of these processes so far, user and system."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


class SeriesClient:
    """Asks /api/series of one run again and again, as a live chart does: only for what it lacks."""

    def __init__(self, root: Path, run: str, metrics: Sequence[str]) -> None:
        endpoint = read_endpoint(root)
        if endpoint is None:
            raise BenchmarkError(f"no endpoint below {root}: is the server up?")
        self._connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=60)
        self._headers = {"x-regimescope-token": endpoint.token}
        self._query = {"run": run, "metrics": ",".join(metrics), "n": "50"}
        self._epoch = ""
        self.last = -1
        "The last step that was served; -1 = none, or the run is not known yet."

    def poll(self, *, points: bool = True) -> int:
        """Asks once; the last step that is served. `points` False: asks for no more than that."""
        since = self.last if points else 1 << 50
        query = {**self._query, "epoch": self._epoch, "since": str(since)}
        self._connection.request("GET", "/api/series?" + urlencode(query), headers=self._headers)
        response = self._connection.getresponse()
        body = json.loads(response.read())
        if response.status == 200:
            self._epoch, self.last = body["epoch"], body["last"]
        elif response.status != 404:  # before the first line is read there is no such run, or no such metric
            raise BenchmarkError(f"/api/series: {response.status} {body.get('error')}")
        return self.last

    def close(self) -> None:
        self._connection.close()
