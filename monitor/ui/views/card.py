"""The card of one alert: times, proposed change, evidence as ratios, chart, why, other explanations, what people say.

Numbers only: no invented probability. What people say (acknowledge, snooze, false alarm, note) is in marks.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import streamlit as st

from regimescope.detectors import Rules, load_rules
from regimescope.detectors.advice import attribution
from regimescope.monitor import query
from regimescope.monitor.cells import cell
from regimescope.monitor.memo import Memo
from regimescope.monitor.notify.due import EVENT as NOTICE
from regimescope.monitor.notify.due import read as read_notices
from regimescope.monitor.notify.told import told_line
from regimescope.monitor.query import AlertRow, Series
from regimescope.monitor.scores import scores
from regimescope.monitor.ui import false_alarms
from regimescope.monitor.ui.context import Context, current
from regimescope.monitor.ui.facts import RunFacts
from regimescope.monitor.ui.figures import CONFIG, SEVERITY_TONE, Mark, baseline, evidence_chart, window
from regimescope.monitor.ui.figures_score import score_chart
from regimescope.monitor.ui.header import badge
from regimescope.monitor.ui.palette import Tone
from regimescope.monitor.ui.runbook import runbook
from regimescope.monitor.ui.session import page_link, theme
from regimescope.monitor.ui.texts import (
    number,
    percent,
    plural,
    signature_text,
)
from regimescope.monitor.ui.verdict import LINT
from regimescope.monitor.ui.views.advice import driver_badges, what_to_do
from regimescope.monitor.ui.views.marks import alert_notes, mark_text, say
from regimescope.monitor.ui.views.worst_rollouts import worst_rollouts

_POINTS = 600
"Points of the evidence chart."
_scores: Memo[Series | None] = Memo()
_TONES: Mapping[str, Tone] = {"critical": "critical", "watch": "watch", "info": "info"}


def alert_card(ctx: Context, facts: RunFacts, alert: AlertRow, marks: Sequence[Mark]) -> None:
    """Draw the card."""
    with st.container(border=True, key="card"):
        _head(alert, facts)
        left, right = st.columns([3, 2], gap="large")
        with left:
            _evidence(ctx, facts, alert, marks)
            _also(alert)
        with right:
            what_to_do(ctx, facts, alert)
            _why(alert)
            _measured(alert)
            _runbook(alert)
        if alert.signature != LINT:
            _rollouts(ctx, facts, alert)
        _notes(facts, alert)
        if not ctx.read_only:
            say(ctx, facts, alert)


def _rollouts(ctx: Context, facts: RunFacts, alert: AlertRow) -> None:
    """The responses behind it, and the way to all of these steps."""
    if "rollouts" not in facts.run.capabilities:
        return
    worst_rollouts(ctx, facts, alert)
    page_link("rollouts", "All rollouts of these steps", icon=":material/notes:", alert=alert.alert_id)


def _head(alert: AlertRow, facts: RunFacts) -> None:
    texts = signature_text(alert.signature)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(texts.title, width="content")
        badge(alert.severity, _TONES[SEVERITY_TONE.get(alert.severity, "info")])
        badge(alert.state, "ok" if alert.state == "resolved" else _TONES[SEVERITY_TONE.get(alert.severity, "info")])
        driver_badges(alert)
        if alert.inhibited_by:
            st.badge("explained by another alert", icon=":material/visibility_off:", color="gray")
        if alert.superseded:
            st.badge("on a stretch that was repeated", icon=":material/history:", color="gray")
    said = mark_text(alert, facts.live.last_step)
    with st.container(gap=None, key="prose-head"):
        st.text(times(alert, facts.live.last_step))
        if alert.text:
            st.text(alert.text)
        if alert.slice:
            st.text(f"Slice: {alert.slice}")
        if said:
            st.text(said)
        if told := _told(facts, alert):
            st.text(told)


def _told(facts: RunFacts, alert: AlertRow) -> str:
    """Who was told about it."""
    with current().monitor.store.cursor() as con:
        return told_line(read_notices(query.events(con, facts.run.run_key, [NOTICE])), alert.alert_id)


def _notes(facts: RunFacts, alert: AlertRow) -> None:
    """What people wrote, as plain text."""
    notes = alert_notes(facts, alert)
    if notes:
        st.markdown(f"**{plural(len(notes), 'note').capitalize()}**")
        with st.container(gap="xsmall", key="prose-notes"):
            for line in notes:
                st.text(line)


def times(alert: AlertRow, last_step: int | None) -> str:
    """ "Onset 412, detected 431, 19 steps later; open for 18 steps"."""
    if alert.signature == LINT:
        return f"From the configuration, at step {alert.step_detected}"
    lag = plural(alert.step_detected - alert.step_onset, "step")
    every = alert.evidence.get("logged_every")
    coarse = f" (logged every {every} steps: the onset is no finer)" if isinstance(every, int) else ""
    text = f"Onset step {alert.step_onset}{coarse}, detected step {alert.step_detected}, {lag} later"
    if alert.open and last_step is not None:
        return f"{text}; open for {plural(max(0, last_step - alert.step_detected), 'step')}"
    return f"{text}; last seen step {alert.step_last}"


def _evidence(ctx: Context, facts: RunFacts, alert: AlertRow, marks: Sequence[Mark]) -> None:
    texts = signature_text(alert.signature)
    metric = watched_metric(alert)
    series = _series(ctx, facts, alert, metric, marks)
    with st.container(horizontal=True, gap="small", key="ratios"):
        for label, value, text in ratios(alert, series):
            st.metric(label, value, border=True, help=text)
    if series.steps:
        unit = texts.unit if metric == texts.metric else ""
        figure = evidence_chart(
            series,
            alert,
            marks,
            last_step=facts.live.last_step or alert.step_last,
            theme=theme(),
            metric=metric,
            unit=unit,
        )
        words = f"{metric} around the onset at step {alert.step_onset}, detected at step {alert.step_detected}"
        st.plotly_chart(figure, theme=None, config=dict(CONFIG), key="evidence", alt=words)
        _score(ctx, facts, alert, marks)
        if series.nonfinite_count:
            st.caption(f"{plural(series.nonfinite_count, 'point')} are not finite and have no place on the chart.")
    with st.expander("All evidence"):
        rows = [
            {"what": name, "value": cell(value) if isinstance(value, str) else number_or_text(value)}
            for name, value in alert.evidence.items()
        ]
        st.dataframe(rows, hide_index=True, height="content", alt="Evidence of this alert")


def _score(ctx: Context, facts: RunFacts, alert: AlertRow, marks: Sequence[Mark]) -> None:
    """The rule's score below its metric, where it has one and the replay is short."""
    if alert.score is None or alert.signature == LINT:
        return
    first, last = window(alert, marks, facts.live.last_step or alert.step_last)
    key = (ctx.monitor.store.instance, facts.run.run_key, alert.alert_id)

    def read() -> Series | None:
        with ctx.monitor.store.cursor() as con:
            return scores(con, facts.run.run_key, alert, ctx.monitor.rules, first=first, last=last)

    series = _scores.get(key, (first, last, alert.step_last), read)
    if series is not None and any(value is not None for value in series.values):
        figure = score_chart(series, alert, first=first, last=last, theme=theme())
        words = "Score of the rule over steps; it has fired above 1, the threshold"
        st.plotly_chart(figure, theme=None, config=dict(CONFIG), key="score", alt=words)


def _series(ctx: Context, facts: RunFacts, alert: AlertRow, metric: str, marks: Sequence[Mark]) -> Series:
    """The watched metric around the alert, in its slice."""
    if not metric:
        return Series(steps=[], values=[], nonfinite=[])
    with ctx.monitor.store.cursor() as con:
        ids = {f"{row.kind}={row.value}": row.slice_id for row in query.slices(con, facts.run.run_key)}
        first, last = window(alert, marks, facts.live.last_step or alert.step_last)
        return query.envelope(con, facts.run.run_key, ids.get(alert.slice or "", 0), metric, first, last, _POINTS)


def number_or_text(value: object) -> str:
    """Any value of the evidence, as text."""
    return number(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def watched_metric(alert: AlertRow) -> str:
    """The metric of the chart: that of the rule where it has one of its own, else that of the signature."""
    rule = _rules().by_name.get(alert.rule)
    named = rule.metric.partition("|")[0] if rule is not None else ""
    return signature_text(alert.signature).metric or named


@cache
def _rules() -> Rules:
    return load_rules()


def ratios(alert: AlertRow, series: Series) -> list[tuple[str, str, str]]:
    """Evidence as ratios, each with label, value and explanation: what fired is at least 1."""
    found = []
    if alert.score is not None and math.isfinite(alert.score):
        found.append(
            (
                "Score / threshold",
                f"{number(alert.score, 2)}x",
                "Evidence over what the rule asks for; below 1 a guard fired, not the shift.",
            )
        )
    effect, needed = _float(alert.evidence.get("effect")), _effect_needed(alert)
    if effect is not None and needed:
        text = f"Size of the change over the size that {alert.severity} asks for."
        found.append(("Effect / required", f"{number(effect / needed, 2)}x", text))
    before, now = baseline(series, alert.step_onset), _newest(series)
    if before is not None and before.median and now is not None:
        text = f"{number(now)} now, {number(before.median)} in the {before.points} points before the onset."
        found.append(("Now / before", f"{number(now / before.median, 2)}x", text))
    return found


def _effect_needed(alert: AlertRow) -> float | None:
    rule = _rules().by_name.get(alert.rule)
    level = rule.levels.get(alert.severity) if rule is not None else None
    return level.effect if level is not None else None


def _newest(series: Series) -> float | None:
    return next((value for value in reversed(series.values) if value is not None), None)


def numbers_behind(alert: AlertRow) -> list[str]:
    """What the line about the driver leaves out: its gradient mass, and signs of distress."""
    regime, facts = alert.driver, []
    mass = _float(alert.evidence.get(f"{regime}.grad_mass")) if regime else None
    if mass is not None:
        facts.append(f"{regime} carried {percent(mass)} of the gradient mass")
    distress = alert.evidence.get("distress")
    if isinstance(distress, str) and distress:
        facts.append(f"signs of distress: {distress}")
    return facts


def _float(value: object) -> float | None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else None  # type: ignore[arg-type]


def _why(alert: AlertRow) -> None:
    texts = signature_text(alert.signature)
    facts = numbers_behind(alert)
    if texts.why or facts:
        st.markdown("**Why**")
    with st.container(gap="xsmall", key="prose-why"):
        if line := attribution(alert.driver, alert.evidence, _rules().texts):
            st.text(line)
        for line in facts:
            st.text(f"• {line}")
        if texts.why:
            st.text(texts.why)


def _measured(alert: AlertRow) -> None:
    """How often the rule was false where nothing was wrong."""
    found = false_alarms.lines(alert.signature)
    if found:
        st.markdown("**Measured false alarms**")
        with st.container(gap=None, key="prose-measured"):
            for line in found:
                st.text(line)


def _runbook(alert: AlertRow) -> None:
    """Our own text, folded away."""
    text = runbook(alert.signature)
    if text:
        with st.expander(f"Runbook: docs/signatures/{alert.signature}.md", icon=":material/menu_book:"):
            st.markdown(text)


def _also(alert: AlertRow) -> None:
    """Other explanations, each with the check that tells them apart; our own fixed sentences."""
    also = signature_text(alert.signature).also
    if also:
        st.markdown("\n".join(["**Also consistent with**", "", *(f"- {line}" for line in also)]))
