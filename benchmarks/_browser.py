"""What the dashboard benchmark does in a browser: windows, the first charts, a zoom with the mouse, heap and CPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil
from benchmarks._server import cpu_seconds
from playwright.sync_api import Browser, CDPSession, Page

SIX_JS = "() => document.querySelectorAll('.js-plotly-plot').length >= 6"
RANGE_JS = "() => [...document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range]"
ZOOM_S = 5.0
"That a zoom has to stand; a point a second comes in."


@contextlib.contextmanager
def tab(browser: Browser) -> Iterator[Page]:
    """A window of its own with an empty cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        yield context.new_page()
    finally:
        context.close()


def first_six(page: Page, address: str) -> float:
    """Seconds until six charts are drawn."""
    start = time.monotonic()
    page.goto(address)
    page.wait_for_function(SIX_JS, timeout=120_000)
    return time.monotonic() - start


def keeps_zoom(page: Page) -> bool:
    """Whether a range drawn with the mouse, and the chart's node, are there after some more rows."""
    page.evaluate("() => { document.querySelector('.js-plotly-plot').dataset.marked = 'yes'; }")
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box, before = plot.bounding_box(), page.evaluate(RANGE_JS)
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=5)
    page.mouse.up()
    page.wait_for_timeout(500)
    zoomed = page.evaluate(RANGE_JS)
    page.wait_for_timeout(1000 * ZOOM_S)
    same = page.evaluate("() => document.querySelector('.js-plotly-plot').dataset.marked === 'yes'")
    return bool(zoomed != before and page.evaluate(RANGE_JS) == zoomed and same)


def inside(session: CDPSession) -> tuple[float, float]:
    """Heap in MB and DOM nodes of a page, after its garbage is gone."""
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return found["JSHeapUsedSize"] / 1e6, found["Nodes"]


def spend(servers: list[psutil.Process], seconds: float, page: Page | None = None) -> tuple[float, float]:
    """CPU of server and browser over this time, percent of one core."""
    browsers = []
    if page is not None:
        browsers = [p for p in psutil.Process().children(recursive=True) if "chrom" in p.name().lower()]
    begin, at_server, at_browser = time.monotonic(), cpu_seconds(servers), cpu_seconds(browsers)
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(1000 * seconds)
    took = time.monotonic() - begin
    return 100 * (cpu_seconds(servers) - at_server) / took, 100 * (cpu_seconds(browsers) - at_browser) / took
