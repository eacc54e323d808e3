"""The main job, end to end: a run collapses, the page says why, a bound is moved there, the trainer dies and goes on.

Server, trainer and Chromium are what a user starts. Nothing is simulated but the person.
"""

import json
import re
import signal
import time

from playwright.sync_api import expect

POINTS = "() => document.querySelector('.js-plotly-plot').data[0].x.length"
RANGE = "() => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range.map(Number)"
RUN = "e2e"


def lines(run_dir, kind, launch=None):
    """All lines of this kind in the trainer's segments, oldest launch first; of one launch by its position."""
    paths = sorted((run_dir / "segments").glob("r*.jsonl"))
    chosen = paths if launch is None else [paths[launch]]
    # a line without its newline is still being written
    rows = [json.loads(line) for path in chosen for line in path.read_bytes().split(b"\n")[:-1]]
    return [row for row in rows if row["k"] == kind]


def wait_until(condition, what, limit_s=60.0):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {limit_s:.0f} s: {what}")


def test_watch_steer_kill_resume(page, serve, launch, tmp_path):
    server = serve(tmp_path / "runs")
    run_dir = server.root / RUN
    train = ["-m", "regimescope.cli", "train", "--run-dir", str(run_dir)]
    trainer = launch([*train, "--scenario", "length-collapse", "--pace", "1"], server.root)

    # a chart grows without reload and keeps its zoom
    page.goto(server.address)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)
    page.wait_for_function(f"() => ({POINTS})() >= 3", timeout=60_000)
    page.evaluate("() => { window.untouched = true; document.querySelector('.js-plotly-plot').dataset.tag = 'first'; }")
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=5)
    page.mouse.up()
    zoomed = page.evaluate(RANGE)
    count = page.evaluate(POINTS)
    page.wait_for_function(f"() => ({POINTS})() >= {count + 3}", timeout=60_000)
    assert page.evaluate(RANGE) == zoomed
    assert page.evaluate("() => window.untouched && document.querySelector('.js-plotly-plot').dataset.tag") == "first"

    # the alert names the regime and the bound, and its link opens the prefilled editor
    page.get_by_role("link", name="Evidence").first.click()
    expect(page.get_by_text("R4").first).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("w_min of A<0")).first).to_be_visible()
    page.get_by_role("link", name=re.compile("Move w_min of A<0: 1 → 0")).first.click()
    page.get_by_role("button", name="Review change").click(timeout=30_000)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("w_min of A<0: 1 → 0")).to_be_visible()
    dialog.get_by_label("Reason (required)").fill("responses collapse, R4 is held up by its lower bound")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()
    applied = page.get_by_text(re.compile(r"Applied at step \d+, revision 1"))
    expect(applied.first).to_be_visible(timeout=30_000)
    step = int(re.search(r"step (\d+)", applied.first.inner_text())[1])

    # the trainer acked, and the rows from that step on carry the new revision
    (ack,) = lines(run_dir, "ack")
    assert (ack["status"], ack["s"], ack["rev"], ack["applied"]["neg"]) == ("applied", step, 1, [0.0, 101.0])
    wait_until(lambda: lines(run_dir, "step")[-1]["s"] >= step + 2, "two steps under the new bounds")
    for row in lines(run_dir, "buckets"):
        assert row["rev"] == (1 if row["s"] >= step else 0)

    def bound_curve():
        curve = server.series(RUN, "neg.w_min")["series"]["neg.w_min"]
        return curve if curve["x"][-1:] > [step] else None

    series = wait_until(bound_curve, "the new bound in the route")
    for at, value in zip(series["x"], series["y"], strict=True):
        assert value == (0.0 if at >= step else 1.0)

    # kill -9: the page turns stale and takes no command
    trainer.send_signal(signal.SIGKILL)
    trainer.wait(10)
    done = lines(run_dir, "step")[-1]["s"]
    expect(page.get_by_text("STALE").first).to_be_visible(timeout=60_000)
    expect(page.get_by_role("button", name="Review change")).to_be_disabled()

    # resume: the run goes on under the acked bounds, and no acknowledged step is lost
    launch([*train, "--resume", "--steps", str(done + 4)], server.root)
    wait_until(lambda: len(list((run_dir / "segments").glob("r*.jsonl"))) > 1, "a second launch")
    header = wait_until(lambda: lines(run_dir, "header", 1), "its header")[0]
    assert header["start"] == "resume" and header["first_step"] in (done, done + 1)
    assert header["revision"] == 1 and header["bounds"]["neg"] == [0.0, 101.0]
    wait_until(lambda: lines(run_dir, "end", 1), "the end of the resumed run")
    assert {row["s"] for row in lines(run_dir, "step")} == set(range(done + 4))
    assert all(row["rev"] == 1 for row in lines(run_dir, "buckets", 1))
    expect(page.get_by_text("ENDED").first).to_be_visible(timeout=30_000)
