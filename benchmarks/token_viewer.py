"""What the token viewer costs: Python and bytes per rollout, then the build and a click in a real Chromium.

    ./dev bench token_viewer [--rounds 5]

The component's own files run in an empty page, without Streamlit, over random tokens that end in a loop. `build` ends
when the page is laid out; `click` chooses a token of the same window, `jump` one of another. Medians.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from statistics import median

from benchmarks._runs import table
from benchmarks.screenshots import chromium

from regimescope.monitor.bounds import Bounds, SignBounds, WeightRule
from regimescope.monitor.query import RolloutRow
from regimescope.monitor.rollout_reader import RolloutTokens
from regimescope.monitor.token_view import token_view
from regimescope.monitor.ui import tokens

SIZES = (2048, 16384, 65536)
HEAD = ("tokens", "Python, ms", "JSON, MB", "build, ms", "another colour, ms", "click, ms", "jump, ms", "spans")
BOUNDS = Bounds(pos=SignBounds(w_min=0.8, w_max=1.5), neg=SignBounds(w_min=0.0, w_max=101.0))
MEASURE = """([text, other]) => {
    const data = JSON.parse(text);
    const timed = (act) => {
        const start = performance.now();
        act();
        document.body.offsetHeight;
        return performance.now() - start;
    };
    const root = document.createElement("div");
    root.append(document.querySelector("template").content.cloneNode(true));
    document.body.append(root);
    const spans = () => root.querySelectorAll(".rs-text .rs-t");
    let close;
    const build = timed(() => { close = window.viewer({ data, parentElement: root }); });
    const colour = timed(() => root.querySelectorAll(".rs-bar button")[2].click());
    const click = timed(() => spans()[1000].click());
    const count = spans().length;
    const jump = timed(() => window.viewer({ data: { ...data, tok: other }, parentElement: root }));
    close();
    root.remove();
    return [build, colour, click, jump, count];
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench token_viewer", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="builds per size (default 5)")
    args = parser.parse_args(argv)
    found = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        html = f"<style>{tokens.part('css')}</style><template>{tokens.part('html')}</template>"
        page.route("**/*", lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
        page.goto("http://viewer.example/")  # answered by the line above: about:blank has no address to write
        script = tokens.script().replace("export default function", "window.viewer = function")
        page.evaluate(f"() => {{ {script} }}")
        for size in SIZES:
            row, contents = _rollout(size)
            start = time.perf_counter()
            view = token_view(row, contents, rule=WeightRule.capped(BOUNDS), bounds=BOUNDS)
            data = tokens.wire(view, rev="r", place={"step": "0", "id": "0"}, tok=None, color=None)
            text = json.dumps(data)
            python = 1000 * (time.perf_counter() - start)
            rounds = [page.evaluate(MEASURE, [text, size - 1]) for _ in range(args.rounds)]
            build, colour, click, jump, count = (median(column) for column in zip(*rounds, strict=True))
            shown = (f"{build:.0f}", f"{colour:.0f}", f"{click:.1f}", f"{jump:.0f}", f"{count:.0f}")
            found.append((f"{size:,}", f"{python:.0f}", f"{len(text) / 1e6:.1f}", *shown))
    print(table(HEAD, found))
    return 0


def _rollout(size: int) -> tuple[RolloutRow, RolloutTokens]:
    draw = random.Random(size)
    ids = [draw.randrange(50_000) for _ in range(size // 2)]
    ids += [ids[i % 40] for i in range(size - len(ids))]
    old = tuple(-draw.expovariate(1) for _ in ids)
    log_r = [draw.gauss(0, 0.3) for _ in ids]
    row = RolloutRow(
        launch_no=0, rank=0, step=0, file="f", row_in_file=0, sample_id=0, group_id=0, env=None, reward=1.0,
        advantage=1.0, correct=True, length=size, finish_reason="length", repetition=0.5, update=0, revision=0,
        weight_version=0, lag=0, pick="worst",
    )  # fmt: skip
    weight = tuple(min(1.5, max(0.8, 2.718281828**x)) for x in log_r)
    return row, RolloutTokens(
        prompt="", response="", token_ids=tuple(ids), logp_old=old,
        logp_new=tuple(a + b for a, b in zip(old, log_r, strict=True)), weight=weight,
        entropy=tuple(draw.expovariate(1) for _ in ids), bucket=tuple(0 if x > 0 else 1 for x in log_r),
        tokens=tuple(f"{i:x} " for i in ids),
    )  # fmt: skip
