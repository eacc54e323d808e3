"""The live grid in Chromium: grows without a reload, keeps zoom and nodes, says when stale, follows the theme."""

import math
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from regimescope.monitor.ui.palette import colors

RANGE = "() => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range.map(Number)"
POINTS = "() => document.querySelector('.js-plotly-plot').data[0].x.length"
"Points of the first curve of the first chart: accuracy."


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(tmp_path_factory.mktemp("root") / "runs")


def open_run(page, server, name):
    """The Overview of a run, its first chart drawn."""
    page.goto(f"{server.address}/?run={name}")
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    page.wait_for_function(f"() => ({POINTS})() > 0")


def wait_points(page, count):
    page.wait_for_function(f"() => ({POINTS})() === {count}", timeout=15_000)


def drag(page, start, end):
    """Zoom with the mouse over a part of the first chart, given as shares of its width; gives the range."""
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
    page.mouse.up()


def test_grows_without_reload_and_keeps_zoom_and_nodes(page, server, record, write_step):
    recorder = record(server.root / "growing")
    for step in range(40):
        write_step(recorder, step)
    open_run(page, server, "growing")
    wait_points(page, 40)
    page.evaluate("() => { window.untouched = true; }")
    page.locator(".js-plotly-plot").evaluate_all("(all) => all.forEach((el, i) => { el.dataset.tag = i; })")
    charts = page.locator(".js-plotly-plot").count()
    whole = page.evaluate(RANGE)
    drag(page, 0.25, 0.6)
    page.wait_for_function(f"() => ({RANGE})()[0] > {whole[0]} + 5")
    zoomed = page.evaluate(RANGE)
    assert zoomed[1] < whole[1] - 5
    others = (
        "() => [...document.querySelectorAll('.js-plotly-plot')].map((el) => el._fullLayout.xaxis.range.map(Number))"
    )
    page.wait_for_function(f"() => ({others})().every((r) => Math.abs(r[0] - {zoomed[0]}) < 1e-6)")
    for step in range(40, 43):
        write_step(recorder, step)
        wait_points(page, step + 1)
        assert page.evaluate(RANGE) == pytest.approx(zoomed), f"the zoom was lost at step {step}"
    tags = page.locator(".js-plotly-plot").evaluate_all("(all) => all.map((el) => el.dataset.tag)")
    assert tags == [str(i) for i in range(charts)], "charts were rebuilt"
    assert page.evaluate("() => window.untouched"), "the page was reloaded"
    page.reload()
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    wait_points(page, 43)
    assert page.evaluate(RANGE) == pytest.approx(zoomed, abs=0.1), "the address does not keep the zoom"
    page.locator(".js-plotly-plot .nsewdrag").first.dblclick()
    page.wait_for_function(f"() => ({RANGE})()[1] >= 42 && ({RANGE})()[0] <= 0")
    assert "x0=" not in page.url


def test_a_chart_out_of_view_waits_and_is_whole_when_one_scrolls_to_it(page, server, record, write_step):
    page.set_viewport_size({"width": 1024, "height": 500})
    recorder = record(server.root / "tall")
    for step in range(10):
        write_step(recorder, step)
    open_run(page, server, "tall")
    wait_points(page, 10)
    last = "() => [...document.querySelectorAll('.js-plotly-plot')].at(-1).data[0].x.length"
    page.wait_for_function(f"() => ({last})() === 10")
    label = page.locator(".rs-chart").last
    write_step(recorder, 10)
    expect(label).to_have_attribute("aria-label", re.compile("at step 10$"), timeout=15_000)
    assert page.evaluate(last) == 10, "a chart that nobody sees was drawn"
    page.locator(".js-plotly-plot").last.scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({last})() === 11", timeout=5_000)
    write_step(recorder, 11)
    page.wait_for_function(f"() => ({last})() === 12", timeout=15_000)


def test_zoom_into_a_long_run_brings_every_step(page, server, record):
    recorder = record(server.root / "long")
    for step in range(3000):
        recorder.step(step, {"accuracy": 9.0 if step == 1777 else 0.5})
    page.goto(f"{server.address}/?run=long")
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    page.wait_for_function(f"() => ({POINTS})() > 400")
    assert page.evaluate(POINTS) < 1500
    assert page.evaluate("() => Math.max(...document.querySelector('.js-plotly-plot').data[0].y)") == 9.0, (
        "the spike is kept"
    )
    expect(page.locator(".rs-thin").first).to_have_text("min/max of 3,000 steps; spikes kept")
    drag(page, 0.5, 0.7)
    page.wait_for_function(
        """() => { const el = document.querySelector('.js-plotly-plot'), x = el.data[0].x;
        const [a, b] = el._fullLayout.xaxis.range;
        return b - a < 1000 && x.filter((s) => s >= a && s <= b).length >= Math.floor(b - a) - 1; }"""
    )


def test_marks_are_drawn_and_the_theme_is_followed_without_a_new_chart(page, server, record, write_step):
    recorder = record(server.root / "broken")
    for step in range(20):
        write_step(recorder, step, **({"accuracy": math.nan} if step in (7, 8) else {}))
    recorder.event("checkpoint", {"path": "ckpt/11"}, step=11)
    write_step(recorder, 20)
    open_run(page, server, "broken")
    wait_points(page, 21)
    marks = "() => document.querySelector('.js-plotly-plot').data.slice(-2).map((t) => [t.x, t.text])"
    traces = page.evaluate(marks)
    assert traces[0][0] == [7, 8] and "not a finite number" in traces[0][1][0]
    assert traces[1] == [[11], ["checkpoint at step 11"]]
    colour = "() => document.querySelector('.js-plotly-plot')._fullLayout.font.color"
    assert page.evaluate(colour) == colors("light")["ink"]
    page.evaluate("() => { document.querySelector('.js-plotly-plot').dataset.tag = 'same'; }")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({colour})() === '{colors('dark')['ink']}'", timeout=10_000)
    assert page.evaluate("() => document.querySelector('.js-plotly-plot').dataset.tag") == "same"


def test_a_label_of_a_run_is_never_markup(page, server, record, write_step):
    """The checkpoint's path is the trainer's text; a run's folder may hold anything a file system takes."""
    evil = "<img src=x onerror=window.hacked=1>"
    recorder = record(server.root / evil, name=evil)
    for step in range(12):
        write_step(recorder, step)
    recorder.event("checkpoint", {"path": evil}, step=11)
    write_step(recorder, 12)
    with page.expect_request(lambda request: "/api/series" in request.url and "onerror" in request.url):
        page.goto(f"{server.address}/?run={quote(evil)}")
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("img[src='x']").count() == 0


def test_a_lost_server_greys_the_charts_and_a_restart_goes_on(page, serve, tmp_path, record, write_step):
    server = serve(tmp_path / "runs")
    port = int(server.address.rpartition(":")[2])
    recorder = record(server.root / "demo")
    for step in range(12):
        write_step(recorder, step)
    open_run(page, server, "demo")
    page.evaluate("() => { window.untouched = true; }")
    server.stop()
    expect(page.locator(".rs-chip")).to_have_text(re.compile("No answer from the server for"), timeout=20_000)
    assert page.locator(".rs-grid.rs-stale .js-plotly-plot").count() > 0, "the charts stay, greyed"
    again = serve(server.root, port=port)
    for step in range(12, 15):
        write_step(recorder, step)
    wait_points(page, 15)
    expect(page.locator(".rs-chip")).to_be_hidden()
    assert page.evaluate("() => window.untouched")
    again.stop()
    page.complaints.console.clear()  # refused connections while it was away
