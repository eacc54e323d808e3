"""Pictures of every page of a root, in two sizes and both themes: `python -m benchmarks.screenshots ROOT OUT`.

Starts a server of its own on a free port and a headless Chromium (REGIMESCOPE_CHROMIUM, else the system's). --full
takes the whole page instead of what fits the window. `python -m benchmarks.screenshots --docs` makes
docs/images/PAGE.png and PAGE-dark.png: it trains the length collapse and takes the pages while that run is dying.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

REPOSITORY = Path(__file__).parents[1]
IMAGES = REPOSITORY / "docs" / "images"
DYING = ["train", "--scenario", "length-collapse", "--pace", "9"]
"Slow enough for every page to be taken before it ends."
PAGES = {
    name: "/" + ("" if name == "overview" else name)
    for name in ("overview", "regimes", "alerts", "rollouts", "control", "forensics", "settings")
}
SIZES = ((1440, 900), (1024, 768))
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SETTLE_MS = 2500
"Charts and fragments that still move when the first chart is there."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture."""

    path: str
    "Path and query of the page."
    file: Path
    size: tuple[int, int]
    "Window, pixels."
    scheme: Scheme
    full: bool
    "The whole page instead of the window."


def main(argv: list[str] | None = None) -> int:
    """Take the pictures and print their paths."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.docs:
        of_a_dying_run()
        return 0
    if args.root is None:
        parser.error("name a ROOT, or --docs")
    query = "?" + urlencode({"run": args.run}) if args.run else ""
    shots = [
        Shot(
            path=path + query, file=args.out / f"{name}-{size[0]}x{size[1]}-{scheme}.png", size=size, scheme=scheme,
            full=args.full,
        )
        for name, path in PAGES.items()
        for size in SIZES
        for scheme in SCHEMES
    ]  # fmt: skip
    with serving(args.root) as address, chromium() as browser:
        for shot in shots:
            take(browser, address, shot)
            print(shot.file)
    return 0


def of_a_dying_run() -> None:
    """The pictures of the documentation, from a real run after its first critical alert."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with training(root / "length-collapse"), serving(root) as address, chromium() as browser:
            _wait_for_critical(browser, address)
            for name, path in PAGES.items():
                for scheme in SCHEMES:
                    file = IMAGES / f"{name}{'' if scheme == 'light' else '-dark'}.png"
                    take(browser, address, Shot(path=path, file=file, size=SIZES[0], scheme=scheme, full=False))
                    print(file.relative_to(REPOSITORY))


@contextlib.contextmanager
def training(folder: Path) -> Iterator[None]:
    """A training run in a process of its own."""
    command = [sys.executable, "-m", "regimescope.cli", *DYING, "--run-dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_critical(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.get_by_text("COLLAPSING").first.wait_for(timeout=300_000)
    page.close()


@contextlib.contextmanager
def serving(root: Path) -> Iterator[str]:
    """A read-write server of the root, its address; stopped at the end."""
    command = [sys.executable, "-m", "regimescope.cli", "serve", str(root), "--port", "0"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line, found = "", None
        while found is None and (line := process.stdout.readline()):  # what else it says comes first
            found = re.search(r"http://\S+", line)
        if found is None:
            sys.exit(f"screenshots: the server did not start: {line.strip() or 'see above'}")
        yield found.group()
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    path = os.environ.get("REGIMESCOPE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        sys.exit("screenshots: no Chromium found; install it, or name one in REGIMESCOPE_CHROMIUM")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )


def take(browser: Browser, address: str, shot: Shot) -> None:
    """Open the page in a tab of its own and save what it shows."""
    width, height = shot.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=shot.scheme)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(address + shot.path)
    _settle(page)
    if shot.full:
        tall = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
        page.set_viewport_size({"width": width, "height": max(height, int(tall))})
        page.wait_for_timeout(SETTLE_MS)
    shot.file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=shot.file)
    context.close()


def _settle(page: Page) -> None:
    page.get_by_test_id("stMainBlockContainer").wait_for()
    with contextlib.suppress(TimeoutError):  # a page without charts
        page.locator(".js-plotly-plot").first.wait_for(timeout=10_000)
    page.wait_for_timeout(SETTLE_MS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.screenshots", description="Pictures of every page of a root."
    )
    parser.add_argument("root", type=Path, nargs="?", metavar="ROOT", help="folder of run folders")
    parser.add_argument(
        "out", type=Path, nargs="?", default=Path("screenshots"), metavar="OUT", help="default: screenshots/"
    )
    parser.add_argument("--run", help="path of the run below ROOT (default: the one the page opens)")
    parser.add_argument("--full", action="store_true", help="the whole page instead of the window")
    parser.add_argument("--docs", action="store_true", help="docs/images/: every page of a run that is dying")
    return parser


if __name__ == "__main__":
    sys.exit(main())
