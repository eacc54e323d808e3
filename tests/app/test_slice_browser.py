"""A click on an environment in the table of the Overview shows its charts, and the address keeps that."""

import re

from playwright.sync_api import expect

ACCURACY = "() => document.querySelector('.js-plotly-plot')?.data?.[0]?.y.at(-1)"
ROW_X, FIRST_ROW_Y = 18, 52
"Where a table, a canvas, has its first box."


def test_a_click_on_an_environment_draws_its_charts(serve, tmp_path, record, write_step, page):
    recorder = record(tmp_path / "runs" / "two")
    for step in range(60):
        for name, value in (("math", 0.75 - 0.005 * step), ("code", 0.25)):
            recorder.scalars(step, {"accuracy": (value, 8)}, slice=("env", name))
        write_step(recorder, step, accuracy=0.9)
    server = serve(tmp_path / "runs")
    page.set_default_timeout(60_000)
    page.goto(server.address)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)
    page.wait_for_function(f"() => ({ACCURACY})() === 0.9")
    box = page.get_by_test_id("stDataFrame").locator("canvas").first.bounding_box()
    page.mouse.click(box["x"] + ROW_X, box["y"] + FIRST_ROW_Y)
    expect(page).to_have_url(re.compile(r"[?&]slice=1(&|$)"))
    page.wait_for_function(f"() => Math.abs(({ACCURACY})() - 0.455) < 1e-6")
    page.reload()
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)
    page.wait_for_function(f"() => Math.abs(({ACCURACY})() - 0.455) < 1e-6")
    expect(page.get_by_label("Charts of this environment")).to_have_value("math")
