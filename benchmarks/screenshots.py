"""Pictures of every page of a root, in two sizes and both themes: `python -m benchmarks.screenshots ROOT OUT`.

Starts a server of its own on a free port and a headless Chromium (REGIMESCOPE_CHROMIUM, else the system's). With
--readme it makes docs/images/overview.png instead. --full takes the whole page instead of what fits the window.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

REPOSITORY = Path(__file__).parents[1]
README_IMAGE = REPOSITORY / "docs" / "images" / "overview.png"
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
    args = _parser().parse_args(argv)
    query = "?" + urlencode({"run": args.run}) if args.run else ""
    shots = (
        [Shot(path="/" + query, file=README_IMAGE, size=SIZES[0], scheme="light", full=False)]
        if args.readme
        else [
            Shot(
                path=path + query,
                file=args.out / f"{name}-{size[0]}x{size[1]}-{scheme}.png",
                size=size,
                scheme=scheme,
                full=args.full,
            )
            for name, path in PAGES.items()
            for size in SIZES
            for scheme in SCHEMES
        ]
    )
    with serving(args.root) as address, chromium() as browser:
        for shot in shots:
            take(browser, address, shot)
            print(shot.file)
    return 0


@contextlib.contextmanager
def serving(root: Path) -> Iterator[str]:
    """A read-write server of the root, its address; stopped at the end."""
    command = [sys.executable, "-m", "regimescope.cli", "serve", str(root), "--port", "0"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
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
    parser.add_argument("root", type=Path, metavar="ROOT", help="folder of run folders")
    parser.add_argument(
        "out", type=Path, nargs="?", default=Path("screenshots"), metavar="OUT", help="default: screenshots/"
    )
    parser.add_argument("--run", help="path of the run below ROOT (default: the one the page opens)")
    parser.add_argument("--full", action="store_true", help="the whole page instead of the window")
    parser.add_argument("--readme", action="store_true", help=f"only {README_IMAGE.relative_to(REPOSITORY)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
