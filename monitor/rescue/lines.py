"""A plan in words, the same on the card, in `check` and in reports: `told(plan)` gives (label, text) in order."""

from __future__ import annotations

import math
from dataclasses import asdict

from regimescope.monitor.bounds import Bounds, SignBounds
from regimescope.monitor.framework_windows import frameworks
from regimescope.monitor.rescue.plan import RescuePlan
from regimescope.monitor.rescue.words import say
from regimescope.monitor.ui.texts import bound_label, plural, span, weight


def told(plan: RescuePlan) -> list[tuple[str, str]]:
    """Checkpoint, bounds, what is lost, whether relaxing can still work, how it is written."""
    lines = [
        ("Go back to", checkpoint_line(plan)),
        ("Resume with", bounds_line(plan)),
        ("Lost", lost_line(plan)),
        ("Relaxing now", relax_line(plan)),
        ("Going back", back_line(plan)),
        ("How", how_line(plan)),
    ]
    return [(label, text) for label, text in lines if text]


def checkpoint_line(plan: RescuePlan) -> str:
    """Which one, or why there is none and what to do."""
    if plan.state == "ready":
        path = say("checkpoint", "path", path=plan.path) if plan.path else ""
        return say("checkpoint", "ready", step=plan.checkpoint, onset=plan.onset, path=path)
    if plan.state == "none":
        return say("checkpoint", "none_in_log" if plan.imported else "none", onset=plan.onset)
    return say("checkpoint", plan.state, step=plan.checkpoint, onset=plan.onset, first=plan.checkpoint)


def back_line(plan: RescuePlan) -> str:
    """What a return to a checkpoint was worth in the lab."""
    if plan.state != "ready":
        return ""
    alone = [] if plan.bound is not None else [say("evidence", "back_alone")]
    return " ".join([say("evidence", "back"), *alone, say("evidence", "size")])


def bounds_line(plan: RescuePlan) -> str:
    """The window to resume with, or why no bound is proposed."""
    bound = "" if plan.bound is None else bound_label(plan.bound)
    return say(
        "bounds", plan.why,
        window="" if plan.bounds is None else window(plan.bounds), bound=bound,
        old="" if plan.old is None else weight(plan.old), new="" if plan.new is None else weight(plan.new),
        names=plan.candidates,
    )  # fmt: skip


def window(bounds: Bounds) -> str:
    """ "A>0 [0.8, 11], A<0 [0, 101]"."""
    return f"A>0 {_pair(bounds.pos)}, A<0 {_pair(bounds.neg)}"


def _pair(side: SignBounds) -> str:
    high = "no upper bound" if math.isinf(side.w_max) else weight(side.w_max)
    return f"[{weight(side.w_min)}, {high}]"


def lost_line(plan: RescuePlan) -> str:
    """Steps and hours that are done again."""
    if plan.lost_steps is None:
        return ""
    hours = say("lost", "no_hours")
    if plan.lost_hours is not None:
        hours = say("lost", "hours", hours=span(3600 * plan.lost_hours))
    steps = plural(plan.lost_steps, "step")
    if plan.state != "ready":
        return say("lost", "all", steps=steps, last=plan.last_step, hours=hours)
    good = say("lost", "good", count=plan.good_steps) if plan.good_steps else ""
    return say("lost", "ready", steps=steps, good=good, hours=hours)


def relax_line(plan: RescuePlan) -> str:
    """Whether a bound alone can still do, with what was measured."""
    steps = plural(plan.since_onset or 0, "step")
    parts = [say("relax", plan.relax, steps=steps, since=plan.since_step)]
    if plan.relax in ("closed", "early", "late", "lost"):
        parts.append(say("evidence", plan.relax))
        if plan.state != "ready":  # else it stands in the next line
            parts.append(say("evidence", "size"))
    if plan.relax in ("early", "late", "lost"):
        parts += [] if plan.takes_bounds else [say("relax", "outside")]
        parts += [] if plan.sees_accuracy else [say("relax", "blind")]
    return " ".join(parts)


def how_line(plan: RescuePlan) -> str:
    """What to know of the commands below it."""
    if plan.live_command:
        return say("ways", "click")
    if plan.way is None:
        return _no_way(plan) if not plan.ours and (plan.state == "ready" or plan.bounds is not None) else ""
    parts = [say("ways", "settings", version=plan.way.version)]
    parts += [say("ways", "missed", what="; ".join(plan.way.missed))] if plan.way.missed else []
    parts += [say("ways", "cap")] if plan.drops and plan.way.settings else []
    parts += [plan.way.note] if plan.way.note else []
    return " ".join(parts) if plan.commands else ""


def _no_way(plan: RescuePlan) -> str:
    """Of a framework that is not in the table: which ones are."""
    key = "unknown" if plan.bounds is not None else "unknown_plain"
    whose = say("ways", "not_listed", framework=plan.framework) if plan.framework else say("ways", "not_told")
    return say("ways", key, whose=whose, names=", ".join(frameworks()))


def as_json(plan: RescuePlan) -> dict[str, object]:
    """For machines, with the words."""
    return {**asdict(plan), "told": [[label, text] for label, text in told(plan)]}
