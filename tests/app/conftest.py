"""Real servers, a real Chromium and runs written by the Recorder, for the tests of the dashboard.

`serve(root, ...)` starts a server process on a free port and stops it at the end of the module; `page` is a browser tab
whose console errors, page errors and foreign requests must stay empty; `record(folder)` opens a Recorder, `write_step`
gives it one step.
"""

import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from regimescope.monitor import Bounds, Limits, Recorder, SignBounds, TokenStats, WeightRule
from regimescope.monitor.endpoint import read_endpoint

REPOSITORY = Path(__file__).parents[2]
BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
HARMLESS = ("/_stcore/health", "/_stcore/host-config")
"Asked below a page's own path on a direct load of a sub-page; two 404s."
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@dataclass
class Server:
    """A server process, healthy when start() returns."""

    process: subprocess.Popen[str]
    root: Path
    address: str

    @property
    def token(self) -> str:
        return read_endpoint(self.root).token

    def request(self, path, *, data=None, headers=(), token=True, raw=None):
        """(status, headers, body text) of one request; JSON data is posted."""
        body = raw if raw is not None else None if data is None else json.dumps(data).encode()
        ask = urllib.request.Request(self.address + path, data=body, headers=dict(headers))
        if body is not None and not ask.has_header("Content-type"):
            ask.add_header("content-type", "application/json")
        if token:
            ask.add_header("x-regimescope-token", self.token)
        try:
            with urllib.request.urlopen(ask, timeout=10) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.headers, refused.read().decode()

    def series(self, run, metrics, **values):
        """The JSON body of /api/series."""
        query = "&".join([f"run={run}", f"metrics={metrics}", *(f"{k}={v}" for k, v in values.items())])
        status, _, body = self.request(f"/api/series?{query}")
        assert status == 200, body
        return json.loads(body)

    def stop(self):
        """Terminate, wait, and give what it printed."""
        if self.process.poll() is None:
            self.process.terminate()
        out, _ = self.process.communicate(timeout=20)
        return out


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def server_environment(cache):
    """Without the caller's REGIMESCOPE_ and STREAMLIT_ settings, with an index folder of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("REGIMESCOPE_", "STREAMLIT_"))}
    return {**kept, "REGIMESCOPE_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """launch(command, root, **environment) -> Popen of a Python command line in the repository."""
    cache = tmp_path_factory.mktemp("cache")
    started = []

    def start(command, root, **environment):
        env = server_environment(cache) | {"REGIMESCOPE_ROOT": str(root)} | environment
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=REPOSITORY,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def serve(launch):
    """serve(root, *flags, command=..., port=None, **environment) -> a healthy Server."""

    def start(root, *flags, command=("-m", "regimescope.cli", "serve"), port=None, **environment):
        port = port or free_port()
        process = launch([*command, *flags], root, **{"REGIMESCOPE_PORT": str(port)} | environment)
        address = f"http://127.0.0.1:{port}"
        wait_healthy(process, address)
        return Server(process, root, address)

    return start


def wait_healthy(process, address, limit_s=40.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the server ended with {process.returncode}:\n{process.communicate()[0]}")
        try:
            with urllib.request.urlopen(address + "/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"no health from {address} within {limit_s:.0f} s")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, that of REGIMESCOPE_CHROMIUM or the system's.

    Without one the test is skipped, or fails when REGIMESCOPE_REQUIRE_BROWSER=1.
    """
    path = os.environ.get("REGIMESCOPE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    if not Path(path).exists():
        if os.environ.get("REGIMESCOPE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"no browser at {path}: name one in REGIMESCOPE_CHROMIUM")
        pytest.skip(f"no browser at {path}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield chromium
        chromium.close()


@dataclass
class Complaints:
    """What a tab must not do."""

    console: list[str] = field(default_factory=list)
    page: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on(
            "console",
            lambda m: self.console.append(f"{m.text} {m.location}") if m.type == "error" and not _harmless(m) else None,
        )
        page.on("pageerror", lambda error: self.page.append(str(error)))
        page.on("request", lambda request: self.foreign.append(request.url) if _is_foreign(request.url) else None)

    def none(self) -> bool:
        return not (self.console or self.page or self.foreign)


def _harmless(message) -> bool:
    path = urlsplit(message.location.get("url", "")).path
    return any(path.endswith(tail) and path != tail for tail in HARMLESS)


def _is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost")


@pytest.fixture
def page(browser: Browser):
    """A tab of its own profile, 1440x900, light. What it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    tab = context.new_page()
    tab.complaints = Complaints()
    tab.complaints.watch(tab)
    tab.set_default_timeout(20_000)
    yield tab
    found = tab.complaints
    context.close()
    assert found.none(), found


@pytest.fixture
def record():
    """record(folder, **options) -> a Recorder that takes commands, writing in the call; closed at the end."""
    open_ones = []

    def start(folder, **options):
        given = {
            "objective": "dispo",
            "rule": WeightRule.capped(BOUNDS),
            "limits": Limits(),
            "can": ("set_bounds", "pause", "resume", "stop", "checkpoint"),
        }
        recorder = Recorder(folder, sync=True, **given | options)
        open_ones.append(recorder)
        return recorder

    yield start
    for recorder in open_ones:
        recorder.close()


@pytest.fixture(scope="session")
def write_step():
    """write_step(recorder, step, **metrics): buckets and scalars of one step of a calm run; metrics replace or add."""
    return _write_step


def _write_step(recorder, step, bounds=BOUNDS, revision=0, **metrics):
    wave = math.sin(step / 7)
    recorder.buckets(step, 0, _stats(0.01 + 0.005 * wave), revision=revision, bounds=bounds)
    calm = {
        "accuracy": 0.5 + 0.1 * wave,
        "reward_mean": 0.2 * wave,
        "entropy_mean": 1.2 - 0.001 * step,
        "response_length_p10": 20 + 2 * wave,
        "response_length_p50": 30 + 3 * wave,
        "response_length_p90": 45 + 4 * wave,
        "rep4_mean": 0.05 + 0.01 * wave,
        "truncated_frac": 0.02,
        "grad_norm": 0.4 + 0.05 * wave,
        "step_seconds": 1.0,
        "lag_mean": 0.0,
    }
    recorder.step(step, calm | metrics)


def _stats(clipped):
    tokens = (300, 280, 500, 520, 40, 60, 300)
    scaled = tuple(float(t) for t in tokens)
    cut = tuple(int(clipped * t) for t in tokens)
    return TokenStats(
        tokens=tokens,
        clip_high=(cut[0], 0, cut[2], 0, 0, 0, 0),
        clip_low=(0, cut[1], 0, cut[3], 0, 0, 0),
        clamped=(0,) * 7,
        ratio_sum=scaled,
        weight_sum=scaled,
        abs_adv_weight_sum=(*scaled[:6], 0.0),
        signed_adv_weight_sum=(300.0, 280.0, -500.0, -520.0, 40.0, -60.0, 0.0),
        entropy_sum=scaled,
        logp_sum=tuple(-s for s in scaled),
        log_ratio_sum=(0.0,) * 7,
        log_ratio_sq_sum=(0.0,) * 7,
    )
