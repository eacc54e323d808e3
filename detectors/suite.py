"""The suite: every enabled rule over one stream of steps.

`Suite().update(step, metrics, events)` gives what opened or changed; `findings()` is the whole picture, which a store
should write, since the last step of an open alert moves without a change. State is rebuilt by replay, never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regimescope.detectors.advice import Advice
from regimescope.detectors.blind import Sightings, inputs, report
from regimescope.detectors.bounds_lint import LowerBound, UpperBound
from regimescope.detectors.declared import Declared
from regimescope.detectors.distress import Benign, Distress
from regimescope.detectors.driver import BucketHistory
from regimescope.detectors.early import EarlyAccuracy, EarlyAllWrong, EarlyPush, EarlyR4
from regimescope.detectors.guards import Above, AccuracyFloor, Nonfinite, NoSignal
from regimescope.detectors.incidents import EARLY, LINT, Incidents, explained, inhibited
from regimescope.detectors.infra import InfraFailed
from regimescope.detectors.lifecycle import RANK
from regimescope.detectors.point import Detector, Point
from regimescope.detectors.rules import Rules, load_rules
from regimescope.detectors.signatures.clip_saturation import ClipSaturation
from regimescope.detectors.signatures.engine_mismatch import ClippedWhenFresh, EngineMismatch
from regimescope.detectors.signatures.entropy_collapse import EntropyCollapse
from regimescope.detectors.signatures.exploration_decay import ExplorationDecay, MeansPool
from regimescope.detectors.signatures.heldout_gap import HeldoutGap
from regimescope.detectors.signatures.length_collapse import LengthCollapse
from regimescope.detectors.signatures.length_runaway import LengthRunaway
from regimescope.detectors.signatures.negative_push import NegativePush
from regimescope.detectors.signatures.repetition_collapse import RepetitionCollapse
from regimescope.detectors.signatures.reward_stall import RewardStall
from regimescope.detectors.signatures.weight_imbalance import WeightImbalance
from regimescope.detectors.signatures.zero_signal import ZeroSignal
from regimescope.detectors.types import Blind, Event, Finding, Severity
from regimescope.detectors.watch import Watch

_DATA = ("curriculum", "length_limit", "sampling")
ESTIMATORS = ("mismatch_k1", "mismatch_logp_abs", "mismatch_k3")


class Suite:
    """All rules over one run, or over one env slice of it.

    >>> suite = Suite()
    >>> for step in range(50):
    ...     for finding in suite.update(step, {"response_length_mean": 300 if step < 40 else 4}):
    ...         print(step, finding.signature, finding.severity, finding.state, "since", finding.step_onset)
    41 length_collapse critical firing since 39
    """

    def __init__(self, rules: Rules | None = None, *, slice: str | None = None, whole: Suite | None = None) -> None:
        """`slice`: value of the env slice that is watched; copied into the findings. `whole`: the suite of its run,
        with which it shares the incidents. Both are given by `Slices`."""
        self.rules = load_rules() if rules is None else rules
        self.rule_version = self.rules.version
        self.slice = slice
        self._closed: list[Finding] = []
        self._ordinals: dict[str, int] = {}
        self._incidents: Incidents = Incidents(self.rules.core["incident"]) if whole is None else whole._incidents
        self._beside: Mapping[str, tuple[str, Severity]] = {}  # of a slice: what is open on the whole
        self._start()

    def _start(self) -> None:
        """Fresh state of all rules; what was found stays."""
        rules, core = self.rules, self.rules.core
        self._unclean = rules["infra_failed"].levels["critical"].value
        self._declared = Declared()
        self._point = Point(self._declared)
        self._buckets = BucketHistory()
        self._advice = Advice(rules)
        self._distress, self._benign = Distress(core), Benign(core)
        self._trains: bool | None = None  # whether a gradient update was seen; None: the log cannot tell
        self._sightings = Sightings(name for rule in rules if rule.enabled for name in inputs(rule))
        self._early_push = EarlyPush(rules["early_push"]) if rules["early_push"].enabled else None
        self._early_watches = [self._watch(detector) for detector in self._first_detectors()]
        self._watches = [self._watch(detector) for detector in self._detectors()]
        self._all = [*self._early_watches, *self._watches]

    def _first_detectors(self) -> list[Detector]:
        """Those that run before distress is known: guards, fast path, lint."""
        rules = self.rules
        detectors: list[Detector] = [
            Nonfinite(rules["nonfinite"]),
            InfraFailed(rules["infra_failed"]),
            AccuracyFloor(rules["accuracy_floor"]),
            Above(rules["truncation_saturated"], inclusive=True, policy=True),
            UpperBound(rules["bounds_r3"]),
            LowerBound(rules["bounds_r4"]),
            ClippedWhenFresh(rules["mismatch_clipped"]),
            NoSignal(rules["no_signal"]),
            EarlyR4(rules["early_r4"], rules["early_gap"]),
            EarlyAccuracy(rules["early_accuracy"]),
            EarlyAllWrong(rules["early_all_wrong"]),
        ]
        return [*self._mismatch(), *(detector for detector in detectors if detector.rule.enabled)]

    def _mismatch(self) -> list[Detector]:
        """One per estimator, whichever of its level and its shift is on."""
        rules = self.rules
        pairs = [(rules[name], rules[f"{name}_shift"]) for name in ESTIMATORS]
        return [
            EngineMismatch(level, shift, rules.core, rules.texts)
            for level, shift in pairs
            if level.enabled or shift.enabled
        ]

    def _detectors(self) -> list[Detector]:
        rules, core = self.rules, self.rules.core
        detectors: list[Detector] = []
        if rules["length_collapse"].enabled or rules["length_floor"].enabled:
            detectors.append(
                LengthCollapse(rules["length_collapse"], rules["length_floor"], core, self._distress, self._benign)
            )
        repetition = [rules["repetition_collapse"], rules["repetition_share"], rules["repetition_level"]]
        if any(rule.enabled for rule in repetition):
            detectors.append(RepetitionCollapse(repetition[:2], repetition[2], core, self._distress))
        decay = rules["exploration_decay"]
        means = MeansPool(decay, core)  # of exploration_decay and entropy_collapse
        if decay.enabled:
            sharp = rules["exploration_decay_sharp"]
            detectors.append(ExplorationDecay(decay, core, self._buckets, means, sharp))
        entropy = rules["entropy_collapse"], rules["entropy_fall"]
        if any(rule.enabled for rule in entropy):
            detectors.append(EntropyCollapse(*entropy, decay, core, self._distress, self._buckets, means))
        if rules["length_runaway"].enabled:
            detectors.append(LengthRunaway(rules["length_runaway"], core, self._benign))
        if rules["zero_signal"].enabled:
            detectors.append(ZeroSignal(rules["zero_signal"]))
        if rules["heldout_gap"].enabled:
            detectors.append(HeldoutGap(rules["heldout_gap"]))
        if rules["negative_push"].enabled:
            detectors.append(NegativePush(rules["negative_push"], core, self._distress))
        if rules["clip_saturation"].enabled:
            detectors.append(ClipSaturation(rules["clip_saturation"], core))
        if rules["reward_stall"].enabled:
            detectors.append(RewardStall(rules["reward_stall"]))
        if rules["weight_imbalance"].enabled:
            detectors.append(WeightImbalance(rules["weight_imbalance"], core))
        return detectors

    def _watch(self, detector: Detector) -> Watch:
        watch = Watch(detector, self.rules, self._buckets, self._declared, self.slice)
        watch.life.ordinal = self._ordinals.get(detector.rule.name, -1)
        watch.life.least = 0 if self.slice is None else RANK["warning"]
        return watch

    def update(self, step: int, metrics: Mapping[str, float], events: Sequence[Event] = ()) -> list[Finding]:
        """One step. Findings that opened, rose, got a verdict or an inhibitor, or ended; each the full current picture
        of its episode."""
        point = self._point
        if step < point.step and not any(event.kind in ("start", "resume", "rollback") for event in events):
            self._resume(step)
        changed: dict[Watch, None] = {}
        for event in events:
            self._take(event, step, changed)
        point = self._point
        point.begin(step, metrics)
        infra = metrics.get("infra_failed_frac")
        point.clean = infra is None or not infra > self._unclean
        point.updated = self._updated(metrics)
        self._sightings.update(step, metrics)
        self._buckets.add(step, metrics)
        if self._early_push is not None:
            point.early_push = self._early_push.update(point)
        for watch in self._early_watches:
            if watch.update(point):
                changed[watch] = None
        if point.clean:
            self._distress.update(point)
            self._benign.update(point)
        for watch in self._watches:
            if watch.update(point):
                changed[watch] = None
        if self.slice is None and self._advice.update(point):  # one task that is lost sends no run back
            changed.update(dict.fromkeys(watch for watch in self._all if watch.life.firing))
        if changed:
            self._settle(changed)
        return [self._emit(watch) for watch in changed]

    def _updated(self, metrics: Mapping[str, float]) -> bool:
        """False while the buffer of an asynchronous run still fills: its first updates are yet to come."""
        if not self._trains:
            updates = metrics.get("updates")
            if updates is not None:
                self._trains = updates > 0
            elif "grad_norm" in metrics or "kl_step" in metrics:
                self._trains = True
        return self._trains is not False

    def _settle(self, changed: dict[Watch, None]) -> None:
        """Incidents of what opened, then who explains whom."""
        for watch in changed:
            if watch.life.firing and watch.incident is None:
                watch.incident = self._incidents.number(watch.onset, apart=watch.rule.signature == LINT)
                watch.logged_every = self._sightings.every(watch.rule)
        firing = self.firing()
        directions = {watch.rule.name: watch.direction for watch in self._all if watch.life.firing}
        by = explained(firing, directions, self._beside) if self._beside else inhibited(firing, directions)
        for watch in self._all:
            if watch.life.firing and watch.inhibited_by != by.get(watch.rule.name):
                watch.inhibited_by = by.get(watch.rule.name)
                changed[watch] = None
        if self._advice.hold_for({**firing, **{f"whole {rule}": alert for rule, alert in self._beside.items()}}):
            changed.update(dict.fromkeys(watch for watch in self._all if watch.life.firing and watch.moves_a_bound))

    def firing(self) -> dict[str, tuple[str, Severity]]:
        """The rules whose alert is open, with its signature and severity."""
        return {
            watch.rule.name: (watch.rule.signature, watch.life.severity)
            for watch in self._all
            if watch.life.firing and watch.life.severity is not None
        }

    def explain(self, beside: Mapping[str, tuple[str, Severity]]) -> list[Finding]:
        """Of a slice: what is open on the whole run has changed. The findings that this dims or brings back."""
        self._beside = beside
        changed: dict[Watch, None] = {}
        self._settle(changed)
        return [self._emit(watch) for watch in changed]

    def _picture(self, watch: Watch) -> Finding:
        """With the advice that stands now: an incident goes back to before its earliest onset."""
        together = (
            other.onset
            for other in self._all
            if other.life.firing and other.incident == watch.incident and other.life.severity != "info"
            # of what another alert explains the fast path alone saw the beginning: a slow mean peaks long before, and
            # early_r4 speaks of the bound, whatever becomes of it
            if (other.inhibited_by is None or other.rule.signature in EARLY) and other.rule.signature != "early_r4"
        )
        return self._advice.revise(watch.finding(), min(together, default=watch.onset))

    def _emit(self, watch: Watch) -> Finding:
        finding = self._picture(watch)
        if not watch.life.firing:
            self._closed.append(finding)
            watch.clear()
        return finding

    def _take(self, event: Event, step: int, changed: dict[Watch, None]) -> None:
        self._advice.take(event)
        if event.kind == "start":
            if self._point.index >= 0:
                self._closed.extend(replace(finding, state="resolved") for finding in self._open())
                self._ordinals = {watch.rule.name: watch.life.ordinal for watch in self._all}
                self._start()
            self._declared.take(event)
        elif event.kind == "resume":
            self._declared.take(event)
            self._resume(step)
        elif event.kind in ("bounds_changed", "rollback"):
            self._declared.take(event)
            if event.kind == "rollback":
                self._buckets.forget_from(step)
            self._buckets.bounds_step = event.step
            self._reseat()
            for watch in self._all:
                if watch.life.firing:
                    watch.bounds_changed(event.step)
                    changed[watch] = None
        elif event.kind == "sync":
            self._point.note_sync(event.step)
        elif event.kind in _DATA:
            for watch in self._all:
                if not watch.life.firing:
                    watch.detector.data_changed()
            if self._early_push is not None:
                self._early_push.data_changed()
            self._distress.data_changed()
            self._benign.data_changed()

    def _resume(self, step: int) -> None:
        self._buckets.forget_from(step)
        self._reseat()

    def _reseat(self) -> None:
        """Find the references again; an open alert keeps its own until it ends, so that "back at baseline" can be
        said."""
        self._distress.reseat()
        self._benign.reseat()
        for watch in self._all:
            if not watch.life.firing:
                watch.reseat(int(self.rules.core["grace"]))

    def findings(self) -> list[Finding]:
        """All episodes so far, current picture, in the order in which they opened. Pending ones are in `pending()`."""
        return sorted([*self._closed, *self._open()], key=lambda finding: finding.step_detected)

    def _open(self) -> list[Finding]:
        return [self._picture(watch) for watch in self._all if watch.life.firing]

    def pending(self) -> list[Finding]:
        """Conditions that hold, but not yet long enough; they may vanish."""
        return [watch.finding() for watch in self._all if watch.life.pending is not None and not watch.life.firing]

    def blind(self) -> list[Blind]:
        """Per enabled rule: what it can see of this log."""
        warming = {watch.rule.name: watch.detector.warming() for watch in self._all}
        return [
            report(rule, self.rules.texts, self._sightings, self._buckets, self._declared, warming.get(rule.name))
            for rule in self.rules
            if rule.enabled
        ]

    def warming(self) -> tuple[int, int]:
        """Points seen (at most those needed), points needed before the shift rules speak."""
        needed = int(self.rules.core["burn_in"] + self.rules.core["min_points"])
        return min(needed, self._point.index + 1), needed
