"""Advice that no rule can give alone: when not to touch a bound, and when only a rollback helps.

`Advice.update(point)` follows the run, `revise(finding, onset)` puts the remedy of an open finding right. While the
engine disagrees or rollouts fail, no bound is proposed. Once accuracy is gone, a bound alone comes too late
(docs/lab.md, "Rescue"): the remedy then names the newest checkpoint before the onset. `attribution` says in one line
what the paper expects and what was measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from regimescope.detectors.driver import in_words
from regimescope.detectors.lifecycle import RANK
from regimescope.detectors.point import Point
from regimescope.detectors.rules import Rules
from regimescope.detectors.types import Event, Finding, Remedy, Severity

HOLDS = ("infra_failed", "engine_mismatch")
"Signatures under which no bound is moved, the one that is told first."
_KEPT = 64


class Advice:
    """What all open findings of a suite share; O(1) memory."""

    __slots__ = ("_best", "_checkpoints", "_core", "_gone", "_recent", "_texts", "_well", "closed", "hold")

    def __init__(self, rules: Rules) -> None:
        self._core, self._texts = rules.core, rules.texts
        self._checkpoints: deque[int] = deque(maxlen=_KEPT)
        self._recent: deque[float] = deque(maxlen=3)  # accuracy of the last points
        self._best = 0.0  # of the first value and all means of three
        self._gone = 0  # points in a row at which next to nothing is left
        self._well: int | None = None  # last step before the window closed whose accuracy was not lost yet
        self.closed = False
        "The window in which a bound alone saves the run is over."
        self.hold: str | None = None
        "Signature that forbids to move a bound now."

    def take(self, event: Event) -> None:
        """A checkpoint was written (and older ones deleted), or the run went back."""
        if event.kind == "checkpoint":
            gone = event.data.get("deleted")
            for step in gone if isinstance(gone, list | tuple) else ():
                if step in self._checkpoints:
                    self._checkpoints.remove(step)
            if event.step not in self._checkpoints:
                self._checkpoints.append(event.step)
        elif event.kind in ("resume", "rollback"):
            kept = [step for step in self._checkpoints if step < event.step]
            self._checkpoints = deque(kept, maxlen=_KEPT)
            self._recent.clear()
            self._gone, self.closed = 0, False

    def update(self, point: Point) -> bool:
        """Whether the window closed, or opened again, at this point."""
        accuracy, core = point.get("accuracy"), self._core
        if not point.clean:
            return False
        low, well = self._nothing_to_learn(point), False
        if accuracy is not None:
            recent = self._recent
            recent.append(accuracy)
            mean = sum(recent) / len(recent)
            if len(recent) == 3 or self._best == 0:
                self._best = max(self._best, mean)
            low = low or mean < core["window_lost"] * self._best
            well = mean > core["window_back"] * self._best
            if not self.closed and accuracy > core["window_back"] * self._best:
                self._well = point.step
        self._gone = self._gone + 1 if low else 0
        before = self.closed
        self.closed = (self.closed and not well) or self._gone >= core["window_points"]
        return self.closed != before

    def _nothing_to_learn(self, point: Point) -> bool:
        """Nearly all groups are equal, and most of those all wrong."""
        dead, wrong = point.get("zero_variance_frac"), point.get("all_wrong_frac")
        return dead is not None and wrong is not None and dead >= self._core["window_dead"] and wrong > dead / 2

    def hold_for(self, firing: Mapping[str, tuple[str, Severity]]) -> bool:
        """Takes what is open, rule to signature and severity; whether the hold changed."""
        known = {signature for signature, severity in firing.values() if RANK[severity] >= RANK["warning"]}
        before, self.hold = self.hold, next((name for name in HOLDS if name in known), None)
        return self.hold != before

    def revise(self, finding: Finding, onset: int) -> Finding:
        """The finding with the remedy that stands now. `onset`: the earliest one of its incident."""
        remedy = finding.remedy
        if finding.state != "firing":
            return finding
        if self.hold is not None and remedy.bound is not None:
            gone = {"window": "closed"} if self.closed else {}
            held = Remedy(text=self._texts[f"hold_{self.hold}"])
            return replace(finding, remedy=held, evidence={**finding.evidence, **gone})
        attributed = "attribution" in finding.evidence and finding.severity != "info"
        waiting = "bounds_changed_at" in finding.evidence and "verdict" not in finding.evidence
        if not self.closed or not attributed or waiting or finding.evidence.get("verdict") == "recovering":
            return finding
        blind = finding.evidence["attribution"] == "no buckets"
        how = "under_these" if "bounds_changed_at" in finding.evidence else "under_checked" if blind else "under_less"
        back = self._back(remedy, onset, how)
        if blind:  # what to log for the next time stays
            back = replace(back, text=f"{back.text}\n{remedy.text}")
        return replace(finding, remedy=back, evidence={**finding.evidence, "window": "closed"})

    def _back(self, remedy: Remedy, onset: int, how: str) -> Remedy:
        # the weights of a checkpoint generate the next step: those of the last good step's own are good no more
        before = onset if self._well is None else min(onset, self._well)
        checkpoint = max((step for step in self._checkpoints if step < before), default=None)
        if remedy.bound is not None:
            under = self._texts["under_bound"].format(bound=in_words(remedy.bound), target=f"{remedy.target:g}")
        else:
            under = self._texts[how]
        key = "roll_back" if checkpoint is not None else "start_again"
        count = 0 if checkpoint is None else onset - checkpoint
        steps = f"{count} step{'' if count == 1 else 's'}"
        text = self._texts[key].format(checkpoint=checkpoint, steps=steps, under=under)
        return replace(remedy, text=text, checkpoint=checkpoint)


def attribution(driver: str | None, evidence: Mapping[str, object], texts: Mapping[str, str]) -> str:
    """ "Paper expects R3; measured here: R4 (clipped low 100 %, ...)": the prior beside the evidence. Empty for a
    finding that the regimes have no part in."""
    how, paper = evidence.get("attribution"), evidence.get("paper_expects")
    if not isinstance(how, str):
        return ""
    if driver is not None:
        found = f"{driver} ({numbers})" if (numbers := _numbers(driver, evidence, texts)) else driver
    elif how == "unclear":
        found = texts["is_unclear"].format(names=evidence.get("candidates"))
    else:
        found = texts[f"is_{how.replace(' ', '_')}"]
    if not isinstance(paper, str):
        return texts["measured"].format(found=found)
    differs = driver is not None and driver not in paper
    return texts["expected_differs" if differs else "expected"].format(paper=paper, found=found)


def _numbers(regime: str, evidence: Mapping[str, object], texts: Mapping[str, str]) -> str:
    parts = []
    for name, key in (
        ("clip_low_frac", "by_low"), ("clip_high_frac", "by_high"), ("held_mass", "by_weight"), ("dispo_gap", "by_gap"),
        ("log_ratio_mean", "by_ratio"),
    ):  # fmt: skip
        value = evidence.get(f"{regime}.{name}")
        if name == "held_mass" and f"{regime}.dispo_gap" in evidence:
            continue  # one figure for how much it moves
        if isinstance(value, int | float) and value:
            parts.append(
                texts[key].format(
                    share=f"{100 * abs(value):.2g}" if abs(value) < 0.995 else "100", value=f"{value:.2g}"
                )
            )
    if "entropy effect" in str(evidence.get("driver_signs")):
        parts.append(texts["by_entropy"])
    return ", ".join(parts)
