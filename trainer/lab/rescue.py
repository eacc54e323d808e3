"""The rescue study: recipes that fail, their bounds relaxed some steps after each kind of alert, or the run taken back
to its last good checkpoint with the bounds relaxed. What recovers, and what it costs.

A run repeats to the digit, so each attempt branches off the failing run at a checkpoint: what a command at that step
boundary would have done, without the steps before it. *Recovered*: the accuracy of the last ten steps reaches
`recovered` of the healthy twin's, same seed. *Lost*: steps from the alert until accuracy is `back` where it was, those
that were thrown away included.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median
from typing import Any

from regimescope.monitor.control import replace_file
from regimescope.trainer.config_file import load_config
from regimescope.trainer.lab.outcomes import LAST, Alerted, Outcome, Row, outcome
from regimescope.trainer.lab.plan import LEAN, Branch, LabRun, sets
from regimescope.trainer.lab.report import markdown
from regimescope.trainer.lab.runs import Runs, code_hash

ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to save one run after one alert."""

    recipe: str
    seed: int
    kind: str
    "Signature of the alert."
    alert: int
    "Step of its detection."
    way: str
    "`+k`: bounds relaxed k steps after the next boundary; or rollback."
    at: int
    "First step under other bounds, of those that the run would have gone on with."
    checkpoint: int | None
    "Step that the run goes on from; None: there was none before the onset."


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    attempt: Attempt
    accuracy: float
    "Mean of the last ten steps."
    share: float
    "Of the healthy twin's."
    lost: int | None
    "Steps; None: it never came back."

    @property
    def recovered(self) -> bool:
        return self.share >= float(table()["grid"]["recovered"])


def write_rescue(out: Path, seeds: Sequence[int], jobs: int, say: Callable[[str], None]) -> str:
    """Carry the study out and write rescue.md and rescue.json; the page."""
    runs = Runs(out, say)
    recipes = list(table()["recipe"])
    bases = [_base(recipe, seed, healthy) for recipe in recipes for seed in seeds for healthy in (False, True)]
    found = {done.run.name: outcome(done) for done in runs.carry_out(bases, jobs)}
    tries = [a for recipe in recipes for seed in seeds for a in attempts(recipe, seed, found)]
    branches = {run.name: run for a in tries if (run := _branch(a)) is not None}
    found |= {done.run.name: outcome(done) for done in runs.carry_out(list(branches.values()), jobs)}
    results = [result(a, found) for a in tries if a.checkpoint is not None]
    page = rescue_page(seeds, tries, results, found.values())
    replace_file(out / "rescue.md", (page + "\n").encode())
    replace_file(out / "rescue.json", json.dumps([_plain(r) for r in results], indent=1).encode())
    return page


def attempts(recipe: str, seed: int, found: Mapping[str, Outcome]) -> list[Attempt]:
    """After the first alert of each kind in the failing run, while it lasts."""
    base = found[_name(recipe, seed, "fails")]
    last = int(base.rows[-1]["step"])
    tried = []
    for alert in _first_of_each(base.alerts):
        ways = [(f"+{wait}", alert.step_detected + 1 + wait) for wait in table()["grid"]["waits"]]
        for way, at in [*ways, (ROLLBACK, alert.step_detected + 1)]:
            if at > last:
                continue
            checkpoint = at - 1 if way != ROLLBACK else _last_good(alert)
            tried.append(
                Attempt(
                    recipe=recipe, seed=seed, kind=alert.signature, alert=alert.step_detected, way=way, at=at,
                    checkpoint=checkpoint,
                )
            )  # fmt: skip
    return tried


def _first_of_each(alerts: Sequence[Alerted]) -> Iterable[Alerted]:
    first: dict[str, Alerted] = {}
    for alert in alerts:
        first.setdefault(alert.signature, alert)
    return first.values()


def _last_good(alert: Alerted) -> int | None:
    """Newest checkpoint of a step before the onset, of those that a run with `checkpoint_every` has."""
    every = table()["grid"]["checkpoint_every"]
    count = min(alert.step_onset, alert.step_detected) // every
    return count * every - 1 if count > 0 else None


def result(attempt: Attempt, found: Mapping[str, Outcome]) -> Result:
    """Of an attempt whose run is among `found`."""
    run = _branch(attempt)
    assert run is not None and run.branch is not None
    base, twin, own = found[run.branch.base], found[_name(attempt.recipe, attempt.seed, "twin")], found[run.name]
    accuracy = fmean(row["accuracy"] for row in own.rows[-LAST:])
    healthy = fmean(row["accuracy"] for row in twin.rows[-LAST:])
    return Result(attempt=attempt, accuracy=accuracy, share=accuracy / healthy, lost=_lost(attempt, base, own))


def _lost(attempt: Attempt, base: Outcome, own: Outcome) -> int | None:
    """Steps until the mean of three accuracies is back where its best was before the alert."""
    assert attempt.checkpoint is not None
    means = _means(base.rows)
    best = max((mean for step, mean in means.items() if step <= attempt.alert), default=0.0)
    needed = table()["grid"]["back"] * best
    back = next((step for step, mean in _means(own.rows).items() if step > attempt.checkpoint and mean >= needed), None)
    return None if back is None else (attempt.at - 1 - attempt.checkpoint) + (back - attempt.checkpoint)


def _means(rows: Sequence[Row]) -> dict[int, float]:
    """Step -> mean of its accuracy and the two before."""
    return {int(row["step"]): fmean(r["accuracy"] for r in rows[max(0, i - 2) : i + 1]) for i, row in enumerate(rows)}


def _base(recipe: str, seed: int, healthy: bool) -> LabRun:
    settings = {**LEAN, **(table()["recipe"][recipe]["relaxed"] if healthy else {"checkpoint.every": 1})}
    settings["checkpoint.keep"] = 100_000
    kind = "twin" if healthy else "fails"
    return LabRun(
        name=_name(recipe, seed, kind), condition=recipe, arm=kind, seed=seed, keep_checkpoints=not healthy,
        options=("--scenario", recipe, "--seed", str(seed), *sets(settings)),
    )  # fmt: skip


def _branch(a: Attempt) -> LabRun | None:
    """Attempts that do the same share a run."""
    if a.checkpoint is None:
        return None
    steps = max(load_config(scenario=a.recipe).steps, a.checkpoint + 1 + table()["grid"]["after"])
    relaxed = table()["recipe"][a.recipe]["relaxed"]
    return LabRun(
        name=_name(a.recipe, a.seed, f"from-{a.checkpoint}"), condition=a.recipe, arm=f"from-{a.checkpoint}",
        seed=a.seed, branch=Branch(base=_name(a.recipe, a.seed, "fails"), checkpoint=a.checkpoint),
        options=("--resume", "--checkpoint", str(a.checkpoint), "--steps", str(steps),
                 *sets({**relaxed, "checkpoint.every": 0})),
    )  # fmt: skip


def _name(recipe: str, seed: int, what: str) -> str:
    return f"{recipe}-s{seed}-{what}"


def rescue_page(
    seeds: Sequence[int], tries: Sequence[Attempt], results: Sequence[Result], outcomes: Iterable[Outcome]
) -> str:
    """Markdown."""
    all_of = list(outcomes)
    head = (
        f"`regimescope lab --grid rescue`, seeds {', '.join(map(str, seeds))}, trainer {code_hash()}, {len(all_of)} "
        f"runs in {sum(o.seconds for o in all_of) / 3600:.1f} hours of one core each. A cell: runs that recover, of "
        "those tried; median steps lost by them."
    )
    ways = [*(f"+{wait}" for wait in table()["grid"]["waits"]), ROLLBACK]
    titles = [f"relaxed, {way} steps" if way != ROLLBACK else "last good checkpoint, relaxed" for way in ways]
    rows = []
    for recipe, kind in dict.fromkeys((a.recipe, a.kind) for a in tries):
        own = [a for a in tries if (a.recipe, a.kind) == (recipe, kind)]
        spoken = ", ".join(str(alert) for _, alert in dict.fromkeys((a.seed, a.alert) for a in own))
        rows.append((recipe, kind, spoken, *(_cell(way, own, results) for way in ways)))
    return f"{head}\n\n" + markdown(("recipe", "alert", "in step (by seed)", *titles), rows)


def _cell(way: str, tries: Sequence[Attempt], results: Sequence[Result]) -> str:
    wanted = [a for a in tries if a.way == way]
    done = [r for r in results if r.attempt in wanted]
    good = [r for r in done if r.recovered]
    without = sum(a.checkpoint is None for a in wanted)
    lost = [r.lost for r in good if r.lost is not None]
    words = f"{len(good)} of {len(done)}" if done else "-"
    words += f"; {median(lost):.0f}" if lost else ""
    return words + (f" ({without} had no checkpoint)" if without else "")


def _plain(r: Result) -> Mapping[str, object]:
    a = r.attempt
    return {
        "recipe": a.recipe, "seed": a.seed, "alert": a.kind, "detected": a.alert, "way": a.way, "at": a.at,
        "checkpoint": a.checkpoint, "accuracy": r.accuracy, "share": r.share, "recovered": r.recovered,
        "lost": r.lost,
    }  # fmt: skip


@cache
def table() -> Mapping[str, Any]:
    """rescue.toml."""
    return tomllib.loads((files("regimescope.trainer.lab") / "rescue.toml").read_text("utf-8"))
