"""Control through the browser against the real trainer, in one run: pause, a change of bounds, what the trainer
rejects, what expires, a rollback while paused, resume; and no gap alert although the run stood long enough for one.
"""

import json
import re
import shutil
import time

from playwright.sync_api import expect

from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.live import GAP_FLOOR_S

RUN = "steered"
KEYS = ("rollout.prompts=6", "rollout.group=4", "rollout.max_tokens=32", "update.batch=8", "evaluation.every=0")


def lines(run_dir, kind):
    """Whole lines of this kind, per launch."""
    paths = sorted((run_dir / "segments").glob("r*.jsonl"))
    rows = [[json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] for path in paths]
    return [[row for row in some if row["k"] == kind] for some in rows]


def wait_until(condition, what, limit_s=90.0):
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.1)
    return found


def confirm(page, why, *, name=False):
    """Fill in the open dialog and apply; without the typed name nothing is sent where it is asked for."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason (required)").fill(why)
    typed = dialog.get_by_label(re.compile("Type the run's name"))
    expect(typed).to_have_count(int(name))
    if name:
        dialog.get_by_role("button", name="Apply").click()
        expect(dialog.get_by_text("The typed name is not this run's name.")).to_be_visible()
        typed.fill(RUN)
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()


def test_pause_change_reject_expire_roll_back_and_go_on(page, serve, launch, tmp_path):
    server = serve(tmp_path / "runs")
    run_dir = server.root / RUN
    settings = [word for key in KEYS for word in ("--set", key)]
    train = ["-m", "regimescope.cli", "train", "--scenario", "length-collapse", "--run-dir", str(run_dir)]
    launch([*train, "--pace", "0.5", "--steps", "500", *settings], server.root)
    wait_until(lambda: any(len(some) >= 6 for some in lines(run_dir, "step")), "six steps")

    page.goto(f"{server.address}/control?run={RUN}&neg_min=0")
    page.get_by_role("button", name="Pause", exact=True).click(timeout=60_000)
    confirm(page, "to look at it", name=True)
    expect(page.get_by_text("PAUSED").first).to_be_visible(timeout=30_000)
    paused_at = time.monotonic()

    # bounds of the link, applied while paused; relaxing wants no name
    page.get_by_role("button", name="Review change").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile(r"tokens of steps? .* would change"))).to_be_visible()
    confirm(page, "R4 is held up by its lower bound")
    expect(page.get_by_text(re.compile(r"Applied at step \d+, revision 1")).first).to_be_visible(timeout=30_000)
    held = len(lines(run_dir, "step")[0])

    # what the trainer rejects: a checkpoint that was there when it was chosen
    steps = sorted(int(path.name[5:]) for path in run_dir.glob("checkpoints/step-*"))
    shutil.rmtree(run_dir / "checkpoints" / f"step-{steps[0]:08d}")
    page.goto(f"{server.address}/control?run={RUN}&rollback={steps[0]}")
    page.get_by_role("button", name="Review rollback").click(timeout=60_000)
    confirm(page, "before the onset", name=True)
    rejected = page.get_by_text(re.compile(f"Rejected by the trainer: .*no checkpoint of step {steps[0]}"))
    expect(rejected.first).to_be_visible(timeout=30_000)

    # what expires: a command for a launch that is gone
    with MonitorSegment(run_dir) as segment:
        issue(run_dir, segment, kind="pause", args={}, launch="gone", expect=None, by="ben", why="an old tab")
    expect(page.get_by_text(re.compile("Not applied: the command is for launch gone")).first).to_be_visible(
        timeout=30_000
    )
    expect(page.get_by_role("button", name="Ask again")).to_be_visible()

    # a rollback of the paused run: a new launch, still paused, under the next revision
    back = steps[2]
    page.goto(f"{server.address}/control?run={RUN}&rollback={back}")
    page.get_by_role("button", name="Review rollback").click(timeout=60_000)
    confirm(page, "again from there, with R4 relaxed", name=True)
    applied = page.get_by_text(re.compile(rf"Applied at step {back + 1}, revision 2"))
    expect(applied.first).to_be_visible(timeout=30_000)
    (header,) = lines(run_dir, "header")[1]
    assert (header["start"], header["first_step"], header["revision"]) == ("rollback", back + 1, 2)
    assert header["bounds"]["neg"] == [0.0, 101.0]
    assert lines(run_dir, "end")[0][0]["reason"] == "rollback"
    expect(page.get_by_text("PAUSED").first).to_be_visible(timeout=30_000)
    assert [len(some) for some in lines(run_dir, "step")] == [held, 0]

    time.sleep(max(0.0, paused_at + GAP_FLOOR_S + 2 - time.monotonic()))
    page.get_by_role("button", name="Resume", exact=True).click()
    confirm(page, "seen enough")
    wait_until(lambda: len(lines(run_dir, "step")[1]) >= 2, "two steps of the new launch")
    expect(page.get_by_text(re.compile(r"[1-9]\d* of 30 steps seen")).first).to_be_visible(timeout=30_000)
    assert {row["rev"] for row in lines(run_dir, "buckets")[1]} == {2}
    page.goto(f"{server.address}/alerts?run={RUN}")
    expect(page.locator("summary", has_text=" rules: ")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("Telemetry gap")).to_have_count(0)
