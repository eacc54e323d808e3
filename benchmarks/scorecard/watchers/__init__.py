"""One file per detector, each with

    Watcher(folder, objective)   a fresh one for one run; `folder` is empty and its own
        .update(row)             one row (canonical names to numbers, `step` among them) -> alarms of that row
        .close()

Each is causal: it sees one row after the other. Those with a package need the environment of the peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Alarm(NamedTuple):
    """What a detector said at one row."""

    name: str
    "Its own name for it; the metric, for rules that watch one."
    level: str
    "warning or critical."


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """What is known about one before it is loaded."""

    title: str
    "For the tables; {} is its version."
    package: str | None
    "That it is in; None: ours, or written here."
    names: Mapping[str, tuple[str, ...]]
    "Failure -> names of its alarms that mean it; an absent failure has no name there."
    limit: int | None = None
    "Most rows of a run that it is given: a check that reads the whole run each time gets slow. None: all."


PER_METRIC = {
    "length": ("response_length_mean",),
    "repetition": ("rep4_mean", "repetition_frac"),
    "decay": ("accuracy",),
}
"A rule that watches one metric names a failure by it."

DETECTORS = {
    "ours": Detector(
        title="regimescope",
        package=None,
        names={
            "length": ("length_collapse",),
            "repetition": ("repetition_collapse",),
            "decay": ("exploration_decay",),
        },
    ),
    "zscore": Detector(title="W&B z-score (30, 3)", package=None, names=PER_METRIC),
    "rlwatch": Detector(title="rlwatch {}", package="rlwatch", names={}, limit=1000),
    "rlprobe": Detector(
        title="rlprobe {}, every 25 rows", package="rlprobe", names={"repetition": ("REPETITION_SPIRAL",)}, limit=600
    ),
    "rlprobe_often": Detector(
        title="rlprobe {}, every 5 rows", package="rlprobe", names={"repetition": ("REPETITION_SPIRAL",)}, limit=600
    ),
    "rldoctor": Detector(title="rldoctor {}", package="rldoctor", names={}, limit=600),
    "page_hinkley": Detector(title="river {} PageHinkley, standardised", package="river", names=PER_METRIC),
    "page_hinkley_defaults": Detector(title="river {} PageHinkley, defaults", package="river", names=PER_METRIC),
    "adwin": Detector(title="river {} ADWIN", package="river", names=PER_METRIC),
}
"In the order of the tables. rldoctor's length_pathology is growth and truncation, never a response that shrinks."
