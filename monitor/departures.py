"""When each metric of a run left its own reference: the statistic of the detectors (`detectors/core.py`) over stored
points, without the rules' further conditions.

    departure(points.steps, points.values, watched_metrics(rules)[0], rules)

A metric has left its reference once the evidence S is above h and the shift above what a rule asks of that metric, two
points in a row; it left at the last point with S = 0 before that. All numbers come from the rules in force. That is no
alert: a rule wants more, and which changes are normal is for it to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regimescope.detectors import Rules
from regimescope.detectors.core import Shift, Transform, identity, log_value, logit

POINTS = 2
"Points in a row, as most rules have it."
MAX_POINTS = 20_000
"Points of a metric that are looked at; a longer run is looked at around what its alerts say."
CLIP_OF = {"R1": "clip_high_frac", "R2": "clip_low_frac", "R3": "clip_high_frac", "R4": "clip_low_frac"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A metric and the numbers of the rules that its shift is measured with."""

    name: str
    label: str
    transform: Transform
    floor: float
    "Least scale of the noise, transformed."
    up: float
    "Least rise, transformed."
    down: float
    fast: float | None = None
    "Half-lives where they differ from the core's."
    slow: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A metric that left its reference."""

    name: str
    step: int
    "Where the change began."
    seen: int
    "Where it was sure."
    rises: bool
    before: float
    "The reference, in the unit of the metric."
    after: float
    "The value where it was sure."


def watched_metrics(rules: Rules) -> list[Watched]:
    """The canonical metrics for which some rule has a least shift."""
    core = rules.core
    short, long = rules["length_collapse"], rules["length_runaway"]
    repeats, entropy = rules["repetition_collapse"], rules["entropy_collapse"]
    repeat, fall = repeats.levels["info"].effect, rules["entropy_fall"].levels["info"].effect
    holds = rules["clip_saturation"].levels["info"].effect

    def one(name: str, label: str, transform: Transform, floor: float, up: float, down: float | None = None) -> Watched:
        given = up if down is None else down
        return Watched(name=name, label=label, transform=transform, floor=floor, up=up, down=given)

    plain = [
        one("accuracy", "Accuracy", logit, core["accuracy_floor"], core["distress_accuracy"]),
        Watched(
            name="entropy_mean", label="Entropy", transform=log_value, floor=core["entropy_floor"], up=fall, down=fall,
            fast=entropy.numbers["fast"], slow=entropy.numbers["slow"],
        ),
        one("response_length_mean", "Length", log_value, short.numbers["floor"],
            long.levels["info"].effect, short.levels["info"].effect),
        one("rep4_mean", "Rep-4", logit, repeats.numbers["floor"], repeat),
        one("truncated_frac", "Truncated", logit, core["share_floor"], long.numbers["truncation"]),
        one("zero_variance_frac", "Dead groups", logit, core["share_floor"], core["distress_dead"]),
        one("grad_norm", "Gradient norm", log_value, core["grad_norm_floor"], core["distress_grad_norm"]),
        one("kl_step", "KL of a step", log_value, core["kl_floor"], core["distress_kl"]),
        one("kl_ref", "KL to the reference", log_value, core["kl_floor"], core["distress_kl"]),
    ]  # fmt: skip
    clipped = [one(f"{r}.{side}", f"{r} clipped", logit, core["share_floor"], holds) for r, side in CLIP_OF.items()]
    mass = [
        one(f"{r}.grad_mass", f"{r} gradient mass", logit, core["share_floor"], core["driver_shift"]) for r in CLIP_OF
    ]
    return [*plain, *clipped, *mass]


def departure(
    steps: Sequence[int], values: Sequence[float], watched: Watched, rules: Rules, reseats: Iterable[int] = ()
) -> Departure | None:
    """The first time the metric left its reference; None = it never did. Values that are not finite are passed over.

    `reseats`: first steps after which a change of what was there before is meant: other bounds, a resume.
    """
    sides = [(_shift(watched, sign, rules), watched.up if sign > 0 else watched.down, sign) for sign in (1, -1)]
    held = [0, 0]
    moved = sorted(reseats)
    for step, value in zip(steps, values, strict=True):
        if not math.isfinite(value):
            continue
        while moved and moved[0] <= step:
            moved.pop(0)
            held = [0, 0]
            for shift, _, _ in sides:
                shift.reseat()
        for i, (shift, least, sign) in enumerate(sides):
            shift.update(int(step), float(value))
            held[i] = held[i] + 1 if shift.evidence > rules.core["h"] and shift.effect > least else 0
            if held[i] == POINTS:
                before = _undone(watched.transform)(shift.slow)
                return Departure(
                    name=watched.name,
                    step=shift.onset,
                    seen=int(step),
                    rises=sign > 0,
                    before=before,
                    after=float(value),
                )
    return None


def _shift(watched: Watched, sign: int, rules: Rules) -> Shift:
    return Shift(watched.transform, sign, watched.floor, rules.core, fast=watched.fast, slow=watched.slow)


def _undone(transform: Transform) -> Callable[[float], float]:
    if transform is logit:
        return lambda x: 1 / (1 + math.exp(-x))
    return identity if transform is identity else math.exp
