"""The three dashboards that `dashboard` compares, each as its own server serves it, and one definition of "drawn".

    with PRODUCTS["tensorboard"](folder) as shown: page.goto(shown.address) ...

A step counts as drawn when an answer that holds it has arrived in the page and two frames were painted since: SEEN
notes that in every page, for ours and for the peers alike. A peer may need longer for its drawing, which counts for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
from benchmarks._environment import FOLDER, ONE_THREAD
from benchmarks._loggers import PEERS, QUIET
from benchmarks._runs import BenchmarkError
from benchmarks._server import serving
from playwright.sync_api import Error, Page

SEEN = """(() => {
  window.seenAt = {};
  const note = (text) => {
    const at = Math.max(text.lastIndexOf('"step"'), text.lastIndexOf('"last"'));
    const found = at < 0 ? null : /^"\\w+":\\s*(\\d+)/.exec(text.slice(at, at + 40));
    if (found === null) return;
    const paint = (then) => requestAnimationFrame(then);
    paint(() => paint(() => { window.seenAt[found[1]] ??= Date.now() / 1000; }));
  };
  const fetched = window.fetch;
  window.fetch = async (...args) => {
    const answer = await fetched(...args);
    if (/series|logs/i.test(answer.url)) answer.clone().text().then(note, () => {});
    return answer;
  };
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...args) {
    this.addEventListener('load', () => { if (/series/i.test(this.responseURL)) note(this.responseText ?? ''); });
    return send.apply(this, args);
  };
})();"""
"Keeps, in window.seenAt, when each newest step was seen first."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A dashboard that is up."""

    address: str
    "Of the page with the charts."
    server: psutil.Process
    nudge: Callable[[Page], None] = lambda page: None
    "What a person does each second to see the newest."


Product = Callable[[Path], AbstractContextManager[Shown]]


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Shown]:
    """The runs below the folder."""
    with serving(folder, folder.parent / "cache") as (address, server):
        yield Shown(address=f"{address}/?run=run", server=server)


@contextlib.contextmanager
def tensorboard(folder: Path) -> Iterator[Shown]:
    """Reads the files every second; its page reloads every 30 s at most often, so its button is pressed each second."""
    command = ["-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--reload_interval", "1"]
    with _peer([*command, "--load_fast", "true"]) as (address, server):
        yield Shown(address=f"{address}#timeseries", server=server, nudge=_press_reload)


@contextlib.contextmanager
def trackio(folder: Path) -> Iterator[Shown]:
    """Its page asks for the whole run about once a second by itself."""
    show = "import trackio; trackio.show(project='bench', open_browser=False)"
    with _peer(["-c", show], TRACKIO_DIR=str(folder)) as (address, server):
        yield Shown(address=address, server=server)


PRODUCTS: dict[str, Product] = {"regimescope": ours, "tensorboard": tensorboard, "trackio": trackio}
LOGGER = {"regimescope": "regimescope, sync", "tensorboard": "tensorboard", "trackio": "trackio"}
"Product -> name of its logger."


def _press_reload(page: Page) -> None:
    with contextlib.suppress(Error):  # it is off while a reload is under way
        page.locator("app-header-reload button").click(timeout=500)


@contextlib.contextmanager
def _peer(arguments: list[str], **settings: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server in the peers' environment. Raises BenchmarkError."""
    env = {**os.environ, **ONE_THREAD, **QUIET, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", **settings}
    command = [str(PEERS.python()), *arguments]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if (found := re.search(r"https?://[\w.]+:\d+/?[?=\w]*", line)) is not None:
                break
        else:
            raise BenchmarkError(f"{' '.join(arguments[:2])} did not start: {''.join(lines[-3:])}")
        threading.Thread(target=process.stdout.read, daemon=True).start()  # or it stops when the pipe is full
        yield found.group(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


class Writer:
    """A `_dashboard_worker`: `written` grows while it records."""

    def __init__(self, logger: str, folder: Path, steps: int, seconds: float) -> None:
        """Returns when the history is there."""
        env = {**os.environ, **ONE_THREAD, **QUIET, "TRACKIO_DIR": str(folder), "PYTHONPATH": "src"}
        arguments = ["-m", "benchmarks._dashboard_worker", logger, str(folder), str(steps), str(seconds)]
        folder.mkdir(parents=True)
        self._process = subprocess.Popen(
            [str(PEERS.python()), *arguments], cwd=FOLDER.parent, env=env, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.written: dict[int, float] = {}
        "Step -> unix time at which the log call had returned."
        while (line := self._process.stdout.readline()).strip() != "ready":
            if not line:
                raise BenchmarkError(f"{logger}: the process that records failed; its own words are above")
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            step, _, at = line.partition(" ")
            if step.isdigit():
                self.written[int(step)] = float(at)

    def close(self) -> None:
        """End it, also in the middle."""
        self._process.kill()
        self._process.wait()


def waits(written: dict[int, float], seen: dict[int, float]) -> list[float]:
    """Seconds from each row to the first picture that holds it, ascending; rows after the last picture are left out."""
    times = sorted(seen.items())
    found = []
    for step, at in written.items():
        drawn = min((when for newest, when in times if newest >= step), default=None)
        if drawn is not None and drawn >= at:
            found.append(drawn - at)
    return sorted(found)


def seen_by(page: Page) -> dict[int, float]:
    """Newest step -> when it was drawn in this page, unix time."""
    return {int(step): at for step, at in page.evaluate("() => window.seenAt").items()}


def open_page(page: Page, shown: Shown, newest: int, limit_s: float = 120.0) -> float:
    """Seconds until a chart with this step or a later one is drawn. Raises BenchmarkError."""
    page.add_init_script(SEEN)
    start = time.time()
    page.goto(shown.address)
    while time.time() - start < limit_s:
        drawn = [at for step, at in seen_by(page).items() if step >= newest]
        if drawn:
            return min(drawn) - start
        page.wait_for_timeout(50)
    raise BenchmarkError(f"{shown.address}: no chart within {limit_s:.0f} s")
