"""One file per detector, each with

    Watcher(folder, objective)   a fresh one for one run; `folder` is empty and its own
        .tell(events, parts)     optional: what a run of ours tells beside the row that comes next
        .update(row)             one row (canonical names to numbers, `step` among them) -> alarms of that row
        .close()

Each is causal: it sees one row after the other. Those with a package need the environment of the peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

DIMMED = "dimmed"


class Alarm(NamedTuple):
    """What a detector said at one row."""

    name: str
    "Its own name for it; the metric, for rules that watch one."
    level: str
    "warning or critical; dimmed: explained by another, to be told and not to be counted."


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
    "entropy": ("entropy_mean",),
    "runaway": ("truncated_frac",),
    "zero": ("zero_variance_frac", "all_wrong_frac"),
}
"A rule that watches one metric names a failure by it."

RLPROBE = {
    "repetition": ("REPETITION_SPIRAL",),
    "entropy": ("ENTROPY_COLLAPSE",),
    "runaway": ("TRUNCATION_STARVE", "REWARD_HACK_LENGTH"),
    "zero": ("DEGENERATE_GROUPS", "REWARD_STD_DEATH", "ADV_COLLAPSE"),
}

DETECTORS = {
    "ours": Detector(
        title="regimescope",
        package=None,
        names={
            "length": ("length_collapse",),
            "repetition": ("repetition_collapse",),
            "decay": ("exploration_decay",),
            "entropy": ("entropy_collapse",),
            "runaway": ("length_runaway",),
            "zero": ("zero_signal",),
        },
    ),
    "zscore": Detector(title="W&B z-score (30, 3)", package=None, names=PER_METRIC),
    "rlwatch": Detector(title="rlwatch {}", package="rlwatch", names={"entropy": ("entropy_collapse",)}, limit=1000),
    "rlprobe": Detector(title="rlprobe {}, every 25 rows", package="rlprobe", names=RLPROBE, limit=600),
    "rlprobe_often": Detector(title="rlprobe {}, every 5 rows", package="rlprobe", names=RLPROBE, limit=600),
    "rldoctor": Detector(
        title="rldoctor {}",
        package="rldoctor",
        limit=600,
        names={"entropy": ("entropy_collapse",), "runaway": ("length_pathology",), "zero": ("advantage_collapse",)},
    ),
    "page_hinkley": Detector(title="river {} PageHinkley, standardised", package="river", names=PER_METRIC),
    "page_hinkley_defaults": Detector(title="river {} PageHinkley, defaults", package="river", names=PER_METRIC),
    "adwin": Detector(title="river {} ADWIN", package="river", names=PER_METRIC),
}
"In the order of the tables. rldoctor's length_pathology is growth and truncation, never a response that shrinks."
