"""Pictures of a study for the docs: `./dev bench lab_figures OUT INTO` opens OUT/figures.html in Chromium and writes
INTO/lab-1.png, lab-2.png and so on, one per condition in the order of the page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1200
"Of the page, pixels."
COLOURS = 64
"Kept of a picture: lines on white need no more, and it has a fifth of the bytes."


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    page_file, into = Path(argv[0]) / "figures.html", Path(argv[1])
    if not page_file.exists():
        print(f"lab_figures: {page_file} is missing: `regimescope lab --out {argv[0]}` writes it", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("REGIMESCOPE_CHROMIUM"))
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector(".plotly-graph-div .main-svg")
        for number, figure in enumerate(page.locator(".plotly-graph-div").all(), 1):
            target = into / f"lab-{number}.png"
            figure.screenshot(path=target)
            Image.open(target).convert("RGB").quantize(COLOURS).save(target, optimize=True)
            print(target)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
