"""The Rollouts page in Chromium: filter, open, colour, inspect, without Python in between; a link that opens the right
token; where a loop starts; and text of a model that stays text.
"""

import math
import re

import pytest
from playwright.sync_api import expect

from regimescope.monitor import Rollout, RolloutOptions, WeightRule
from regimescope.monitor.bounds import Bounds, SignBounds

BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=11.0), neg=SignBounds(w_min=0.0, w_max=101.0))
LOOP = "6+9=15;15+6=21;21-2=9;C21-2=9;C21-2=9;C21-2=9;#9"
"A response of the lab's repetition-collapse run: from token 15 on `21-2=9;C` three times, then it got away."
HOSTILE = [
    "<img src=x onerror=window.hacked=1>", "<script>window.hacked=1</script>", "<svg onload=window.hacked=1>", "![x](http://192.0.2.1/x.png)",
    "[x](javascript:window.hacked=1)", "</span><b>bold</b>", "\x1b[31m", "\u202egnp.exe", "\n", "\x00", "", " ",
    "$x^2$", ":red[x]", "&lt;",
]  # fmt: skip


def tokens_of(text, *, advantage, ratios=()):
    """Arrays of a response of one character per token and an end token; `ratios`: r of some of them."""
    n = len(text) + 1
    log_r = [math.log(dict(ratios).get(i, 1.0)) for i in range(n)]
    low, high = (0.8, 11.0) if advantage > 0 else (0.0, 101.0)
    bucket = [(0 if x > 0 else 1) + 2 * (advantage < 0) if x else 4 + (advantage < 0) for x in log_r]
    return {
        "length": n, "token_ids": [*(ord(c) for c in text), 1], "logp_old": [-3.0] * n,
        "logp_new": [-3.0 + x for x in log_r], "weight": [min(high, max(low, math.exp(x))) for x in log_r],
        "bucket": bucket, "entropy": [0.1 * (i % 20) for i in range(n)], "finish_reason": "eos", "response": text,
        "advantage": advantage,
    }  # fmt: skip


def written(step):
    """Three answers to one prompt."""
    right = tokens_of("6+9=15;15-2=13;#13", advantage=1.0, ratios=[(2, 0.5), (9, 20.0), (11, math.exp(0.3))])
    loop = tokens_of(LOOP, advantage=-1.0, ratios=[(i, 1.9) for i in range(15, 39)])
    n = len(HOSTILE)
    hostile = {
        "length": n, "token_ids": list(range(n)), "tokens": HOSTILE, "entropy": [0.5] * n, "finish_reason": "length",
        "response": "".join(HOSTILE), "advantage": 0.0, "logp_old": [math.nan] * n, "logp_new": [-1.0] * n,
    }  # fmt: skip
    said = [(right, True, 1.0, "6+9-2="), (loop, False, -1.0, "6+9-2="), (hostile, None, 0.0, "".join(HOSTILE))]
    return [
        Rollout(
            sample_id=i, group_id=i // 2, env="chain", prompt=prompt, reward=reward, correct=correct, update=0, **values
        )
        for i, (values, correct, reward, prompt) in enumerate(said)
    ]


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(tmp_path_factory.mktemp("root") / "runs")


@pytest.fixture
def demo(server, record, write_step):
    """The run, written once."""
    folder = server.root / "demo"
    if not folder.exists():
        recorder = record(folder, rule=WeightRule.capped(BOUNDS), rollouts=RolloutOptions(every=1, limit=8))
        for step in range(4):
            recorder.rollouts(step, written(step))
            write_step(recorder, step)
    return server


def spans(page):
    return page.locator(".rs-text .rs-t")


def field(page, name):
    """A line of the inspector."""
    return page.locator(".rs-look dt", has_text=re.compile(f"^{re.escape(name)}$")).locator(
        "xpath=following-sibling::dd[1]"
    )


def wait_address(page, without=(), **wanted):
    """Until the address has these parameters; it follows what is drawn."""
    page.wait_for_function(
        """([wanted, without]) => {
            const at = new URLSearchParams(window.location.search);
            return Object.entries(wanted).every(([k, v]) => at.get(k) === v) && without.every((k) => !at.has(k));
        }""",
        arg=[wanted, list(without)],
    )


def open_page(page, server, query):
    page.goto(f"{server.address}/rollouts?run=demo{query}")
    expect(spans(page).first).to_be_visible(timeout=30_000)


def test_filter_open_colour_and_inspect(page, demo):
    open_page(page, demo, "")
    page.get_by_label("Verdict").click()
    page.get_by_role("option", name="correct", exact=True).click()
    expect(page.get_by_text("4 rollouts", exact=True)).to_be_visible()
    wait_address(page, verdict="correct")
    expect(page.get_by_role("heading", name="Step 3, no. 0")).to_be_visible()
    box = page.locator("[data-testid='stDataFrame'] canvas").first.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 52 + 35)
    expect(page.get_by_role("heading", name="Step 2, no. 0")).to_be_visible()
    wait_address(page, step="2", id="0", verdict="correct")

    expect(spans(page).nth(2)).to_have_class(re.compile(r"\br1\b.* low")), "r = 0.5, held at 0.8"
    expect(spans(page).nth(9)).to_have_class(re.compile(r"\br6\b.* high")), "r = 20, held at 11"
    expect(spans(page).nth(11)).to_have_class(re.compile(r"\br4\b"))
    page.evaluate("() => { document.querySelectorAll('.rs-text .rs-t').forEach((el, i) => { el.dataset.tag = i; }); }")
    page.get_by_role("button", name="regime", exact=True).click()
    expect(spans(page).nth(9)).to_have_class(re.compile(r"\bb0\b")), "R1"
    expect(page.get_by_role("button", name="regime", exact=True)).to_have_attribute("aria-pressed", "true")
    spans(page).nth(11).hover()
    expect(field(page, "r")).to_have_text("1.35")
    page.get_by_role("button", name="Next clipped (2)").click()
    page.get_by_role("button", name="Next clipped (2)").click()
    expect(field(page, "token")).to_have_text("9 of 19")
    told = {"text": "-", "r": "20", "weight w": "11", "clipped": "high", "bounds": "w 0.8 to 11 (A>0)",
            "regime": "R1 A>0, r>1", "logp old": "-3", "id": str(ord("-")), "entropy": "0.9"}  # fmt: skip
    for name, said in told.items():
        expect(field(page, name)).to_have_text(said)
    page.locator(".rs-text").press("ArrowRight")
    expect(field(page, "token")).to_have_text("10 of 19")
    wait_address(page, tok="10", color="regime")

    page.get_by_label("Order").click()
    page.get_by_role("option", name="oldest first").click()
    wait_address(page, sort="old", tok="10", color="regime", id="0")
    assert spans(page).nth(3).get_attribute("data-tag") == "3", "the viewer was built again"


def test_a_link_opens_its_rollout_its_token_and_its_colour(page, demo):
    open_page(page, demo, "&step=1&id=1&tok=17&color=entropy")
    expect(page.get_by_role("heading", name="Step 1, no. 1")).to_be_visible()
    expect(field(page, "token")).to_have_text(f"17 of {len(LOOP) + 1}")
    expect(spans(page).nth(17)).to_have_class(re.compile(r"\be6\b.* sel"))
    expect(page.get_by_text("2 responses kept of this prompt")).to_be_visible()
    page.get_by_role("link", name="No. 0", exact=True).click()
    expect(page.get_by_role("heading", name="Step 1, no. 0")).to_be_visible()
    wait_address(page, ["tok"], id="0", color="entropy")
    expect(spans(page)).to_have_count(19)
    expect(spans(page).nth(13)).to_have_class(re.compile(r"\be")), "the colour stays"


def test_the_start_of_a_loop_is_marked(page, demo):
    open_page(page, demo, "&step=0&id=1")
    expect(page.locator(".rs-flag")).to_have_text("loop starts here")
    assert page.evaluate("() => document.querySelector('.rs-flag').nextSibling.at") == 15
    expect(page.get_by_text("Loop starts at token 15: 8 tokens, 3 rounds, left again at token 46.")).to_be_visible()
    page.get_by_role("button", name="Loop starts at token 15").click()
    expect(field(page, "token")).to_have_text(f"15 of {len(LOOP) + 1}")
    page.get_by_role("button", name="repetition", exact=True).click()
    expect(spans(page).nth(15)).to_have_class(re.compile(r"\bg1\b"))
    expect(field(page, "said before")).to_have_text("yes, in the loop")


def test_what_a_model_wrote_stays_text(page, demo):
    open_page(page, demo, "&step=0&id=2")
    shown = [text.removesuffix("\n") for text in spans(page).all_text_contents()]
    escaped = {"\x1b[31m": "\\u001b[31m", "\u202egnp.exe": "\\u202egnp.exe", "\n": "⏎", "\x00": "\\u0000", "": "∅"}
    assert shown == [escaped.get(text, text) for text in HOSTILE]
    spans(page).first.click()
    expect(field(page, "text")).to_have_text(HOSTILE[0])
    expect(field(page, "logp old")).to_have_text("NaN")
    expect(spans(page).first).to_have_class(re.compile(r"\bbad\b")), "a ratio that is no number"
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("img[src='x'], .rs-text b, .rs-text script, .rs-text svg").count() == 0
    assert page.locator(".rs-text .rs-t").evaluate_all("(all) => all.every((el) => el.children.length === 0)")
    isolated = page.evaluate("() => getComputedStyle(document.querySelector('.rs-text .rs-t')).unicodeBidi")
    assert isolated == "isolate"
