"""The five answers of the Overview as data, in their order: alive, where, policy or infrastructure, held out, regimes.

Pure functions of what was read; the page only draws them. A missing metric is named, so that one knows what to log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regimescope.monitor.query import AlertRow, CommandRow, EventRow, Latest, SegmentRow, SliceRow
from regimescope.monitor.ui.facts import Proposal, RunFacts, last_good_step
from regimescope.monitor.ui.palette import Tone
from regimescope.monitor.ui.texts import (
    ago,
    bound_label,
    driver_text,
    number,
    percent,
    plural,
    signature_text,
    span,
    weight,
)
from regimescope.monitor.ui.verdict import CLOCK, LINT, of_slice, state_s

NEAR_POINTS, NEAR_SHARE, LOST_SHARE = 0.1, 0.25, 0.5
"""Held out: an accuracy is clearly below its best by more than 10 points or a quarter of it, whichever is less; it is
lost below half of it."""

REGIMES = ("R1", "R2", "R3", "R4")
CLIPS = {"R1": "R1.clip_high_frac", "R2": "R2.clip_low_frac", "R3": "R3.clip_high_frac", "R4": "R4.clip_low_frac"}
"The side on which each regime's own bound binds, for a weight with base r."
INFRA_SIGNATURES = ("infra_failed", "engine_mismatch", *CLOCK)
"Alerts that say nothing about the policy."
_SEVERITY_TONES: Mapping[str, Tone] = {"critical": "critical", "warning": "watch"}
_NO_BUCKETS = "no regime evidence: log buckets (Recorder.buckets)"
_FINE: Tone = "ok"
_BLIND: Tone = "off"
_LINT: Tone = "watch"
MISMATCH = ("mismatch_k1", "mismatch_logp_abs", "mismatch_k3")

METRICS = (
    *("infra_failed_frac", *MISMATCH, "lag_mean", "lag_p95", "lag_max", "updates"),
    *("accuracy", "eval.accuracy"),
    *CLIPS.values(),
    *(f"{regime}.grad_mass" for regime in REGIMES),
)
"What the answers read, beside the tiles."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """What the held-out evaluations of a run came to."""

    count: int = 0
    best: float | None = None
    "Highest finite value; None = none yet."
    best_step: int = 0
    "The first step that had it."

    def add(self, step: int, value: float) -> Evaluations:
        """With one more, after the others."""
        if math.isfinite(value) and (self.best is None or value > self.best):
            return Evaluations(count=self.count + 1, best=value, best_step=step)
        return Evaluations(count=self.count + 1, best=self.best, best_step=self.best_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One line of the Overview."""

    question: str
    "In the reader's words."
    word: str
    "The answer in one or two words; on the badge."
    tone: Tone
    text: str
    "One line of numbers and fixed words, nothing that a run or person wrote."
    notes: tuple[str, ...] = ()
    "Quieter lines; may hold a person's name, so they are drawn as plain text."


def alive(facts: RunFacts, losses: Sequence[SegmentRow] = ()) -> Answer:
    """1: is it alive, or waiting, paused, gone? With the last good checkpoint, the last command and what was lost."""
    run, live = facts.run, facts.live
    words: Mapping[str, tuple[str, Tone]] = {
        "paused": ("paused", "info"),
        "waiting_rollouts": ("waiting", "info"),
        "evaluating": ("evaluating", "ok"),
        "checkpointing": ("saving", "ok"),
    }
    word, tone = words.get(live.state or "", ("running", "ok"))
    if live.ended:
        word, tone = "ended", "stale"
    elif live.stale:
        word, tone = "silent", "stale"
    parts = [f"last sign of life {ago(live.silent_s)} ago"]
    if live.last_step is not None and live.last_step >= 0:
        parts.insert(0, f"step {live.last_step:,}")
    if live.median_step_s:
        parts.append(f"{span(live.median_step_s)} per step")
    since = state_s(run, live)
    if since is not None and live.state not in (None, "running") and not live.ended:
        parts.append(f"in this state for {span(since)}")
    way_back = last_good_checkpoint(facts.checkpoints, facts.open_alerts)
    found = [way_back, last_command(facts.commands), lost_records(losses)]
    note = " · ".join(text for text in found if text)
    notes = (*((note,) if note else ()), *facts.troubles)
    return Answer(question="Alive?", word=word, tone=tone, text=" · ".join(parts), notes=notes)


def last_good_checkpoint(checkpoints: Sequence[EventRow], active: Sequence[AlertRow]) -> str:
    """The newest checkpoint before the earliest onset of an open warning or critical alert; without one, the newest."""
    if all(event.step is None for event in checkpoints):
        return ""
    step = last_good_step(checkpoints, active)
    if step is None:
        return "no checkpoint before the onset"
    good = "good " if any(alert.severity != "info" for alert in active) else ""
    return f"last {good}checkpoint: step {step}"


def lost_records(segments: Sequence[SegmentRow]) -> str:
    """What of the recording is missing or unreadable; empty when nothing."""
    lost, bad = sum(row.lost for row in segments), sum(row.bad_lines for row in segments)
    parts = [f"{plural(lost, 'record')} lost"] * bool(lost) + [f"{plural(bad, 'line')} not readable"] * bool(bad)
    return ", ".join(parts)


def last_command(commands: Sequence[CommandRow]) -> str:
    """ "last command: set_bounds by ana, applied at step 447"."""
    if not commands:
        return ""
    command = commands[0]
    at = f" at step {command.applied_step}" if command.applied_step is not None else ""
    by = f" by {command.by}" if command.by else ""
    return f"last command: {command.kind}{by}, {command.status}{at}"


def where(envs: Sequence[tuple[SliceRow, Latest | None]]) -> Answer:
    """2: which environment? Worst first is the caller's table; this is the line above it."""
    if not envs:
        text = 'no env slices: everything is one part. To split it, record with slice=("env", NAME)'
        return Answer(question="Where?", word="one part", tone="off", text=text)
    falling = [latest for _, latest in envs if latest and latest.before is not None and latest.value < latest.before]
    tone: Tone = "watch" if falling else "ok"
    text = f"accuracy fell against 50 steps ago in {len(falling)} of {len(envs)}"
    return Answer(question="Where?", word=plural(len(envs), "part"), tone=tone, text=text)


def worst_first(envs: Sequence[tuple[SliceRow, Latest | None]]) -> list[tuple[SliceRow, Latest | None]]:
    """Slices by their change of accuracy, the largest loss first; those without a value last."""

    def loss(row: tuple[SliceRow, Latest | None]) -> float:
        latest = row[1]
        if latest is None:
            return float("inf")
        return latest.value - latest.before if latest.before is not None else 1 + latest.value

    return sorted(envs, key=loss)


def policy_or_infrastructure(facts: RunFacts, latest: Mapping[str, Latest]) -> Answer:
    """3: failed rollouts, engine mismatch, lag and ratio source, before any word about the policy."""
    found = [alert for alert in facts.open_alerts if alert.signature in INFRA_SIGNATURES]
    parts = [_share("failed rollouts", latest, "infra_failed_frac")]
    mismatch = next((name for name in MISMATCH if name in latest), None)
    parts.append(
        f"engine {mismatch} {number(latest[mismatch].value)}"
        if mismatch
        else "engine mismatch not logged (mismatch_k1)"
    )
    if "lag_mean" in latest:
        lags = [
            f"{label} {number(latest[name].value)}"
            for label, name in (("mean", "lag_mean"), ("p95", "lag_p95"), ("max", "lag_max"))
            if name in latest
        ]
        parts.append("lag " + ", ".join(lags))
    else:
        parts.append("lag unknown (log lag_mean)")
    word, tone = _blame(facts, latest, found, mismatch)
    notes = (ratio_note(facts.run.ratio_source, latest),)
    return Answer(question="Policy or infrastructure?", word=word, tone=tone, text=" · ".join(parts), notes=notes)


def _blame(
    facts: RunFacts, latest: Mapping[str, Latest], infra: Sequence[AlertRow], mismatch: str | None
) -> tuple[str, Tone]:
    if infra:
        return "infrastructure", "critical" if infra[0].severity == "critical" else "watch"
    if "infra_failed_frac" not in latest and mismatch is None:
        return "not logged", "off"
    return ("policy", "info") if _of_policy(facts) else ("no fault", "ok")


def ratio_note(ratio_source: str | None, latest: Mapping[str, Latest]) -> str:
    """What the importance ratio of this run means, where that limits what clip shares can tell."""
    if ratio_source == "proximal":
        return "ratio source proximal: clip signals inert"
    if ratio_source == "infer":
        return "ratio source infer: buckets noisy"
    if ratio_source is None:
        return "ratio source not known"
    on_policy = (
        "lag_max" in latest and latest["lag_max"].value == 0 and "updates" in latest and latest["updates"].value == 1
    )
    return "on-policy: one update at lag 0, so r = 1 and no clipping" if on_policy else f"ratio source {ratio_source}"


def held_out(latest: Mapping[str, Latest], evaluations: Evaluations) -> Answer:
    """4: what does the held-out evaluation say, against its best so far? A gap points to reward hacking."""
    question = "Held out?"
    if "eval.accuracy" not in latest:
        return Answer(question=question, word="not logged", tone="off", text="no evaluation yet (log eval.accuracy)")
    held = latest["eval.accuracy"]
    text = f"eval.accuracy {percent(held.value)} at step {held.step}"
    if "accuracy" in latest:
        gap = latest["accuracy"].value - held.value
        sign = "+" if gap >= 0 else ""
        text += f" · training accuracy {percent(latest['accuracy'].value)} · gap {sign}{number(100 * gap)} points"
    best = evaluations.best
    if best is not None and evaluations.best_step != held.step:
        text += f" · best {percent(best)} at step {evaluations.best_step}"
    return Answer(
        question=question,
        word=percent(held.value),
        tone=held_out_tone(held.value, best),
        text=f"{text} · {plural(evaluations.count, 'evaluation')}",
    )


def held_out_tone(value: float, best: float | None) -> Tone:
    """ok while it is not clearly below its best so far; not a number is as bad as nothing."""
    if not math.isfinite(value) or (best is not None and value < LOST_SHARE * best):
        return "critical"
    return "watch" if best is not None and value < best - min(NEAR_POINTS, NEAR_SHARE * best) else "ok"


def regimes(facts: RunFacts, latest: Mapping[str, Latest]) -> Answer:
    """5: which regime drives it, and which bound to move."""
    clips = [f"{regime} {percent(latest[name].value)}" for regime, name in CLIPS.items() if name in latest]
    mass = [
        f"{regime} {percent(latest[f'{regime}.grad_mass'].value)}"
        for regime in REGIMES
        if f"{regime}.grad_mass" in latest
    ]
    numbers = " · ".join(
        [f"clipped {', '.join(clips)}"] * bool(clips) + [f"gradient mass {', '.join(mass)}"] * bool(mass)
    )
    lint = lint_note(facts.alerts)
    worst = next(iter(_of_policy(facts)), None)
    if worst is None:
        word, tone = ("lint", _LINT) if lint else ("none", _FINE) if numbers else ("not logged", _BLIND)
        notes = (lint, lint_move(facts)) if lint else ()
        return Answer(question="Which regime?", word=word, tone=tone, text=numbers or _NO_BUCKETS, notes=_filled(notes))
    driver = f"{worst.driver} ({driver_text(worst.driver)})" if worst.driver else _no_driver(worst)
    name = f"{signature_text(worst.signature).title}{of_slice(worst)}"
    return Answer(
        question="Which regime?",
        word=worst.driver or "unclear",
        tone=_SEVERITY_TONES.get(worst.severity, "info"),
        text=f"{name} since step {worst.step_onset} · {driver} · {move(facts.remedy)}",
        notes=_filled((numbers or _NO_BUCKETS, lint)),
    )


def _no_driver(alert: AlertRow) -> str:
    """Why there is none."""
    how, names = alert.evidence.get("attribution"), alert.evidence.get("candidates")
    return {
        "unclear": f"driver unclear: {names}",
        "no buckets": "no attribution without buckets",
        "ratios proximal": "no attribution from proximal ratios",
    }.get(str(how), "no driver: no regime stands out")


def _of_policy(facts: RunFacts) -> list[AlertRow]:
    return [alert for alert in facts.open_alerts if alert.signature not in INFRA_SIGNATURES]


def _filled(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(note for note in notes if note)


def lint_move(facts: RunFacts) -> str:
    """The bound that the lint would move, while no alert proposes one."""
    return move(facts.lint_remedy) if facts.lint_remedy is not None else ""


def move(change: Proposal | None) -> str:
    """The bound to move, as an alert proposes it."""
    if change is None:
        return "no bound is proposed"
    return f"move {bound_label(change.bound)}: {weight(change.old)} → {weight(change.new)}"


def lint_note(alerts: Sequence[AlertRow]) -> str:
    """What the bounds lint says of the bounds in force; empty when nothing."""
    texts = [alert.text or signature_text(LINT).why for alert in alerts if alert.signature == LINT and alert.open]
    return f"bounds lint: {'; '.join(texts)}" if texts else ""


def _share(label: str, latest: Mapping[str, Latest], name: str) -> str:
    return f"{label} {percent(latest[name].value)}" if name in latest else f"{label} not logged ({name})"
