"""A report as one HTML file that opens from disk: no script, nothing fetched, every text of a run escaped.

`html(findings)`; `page(title, parts)` for other reports of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from regimescope.monitor.check import grouped
from regimescope.monitor.report.charts import Chart, Line, shown, svg
from regimescope.monitor.report.gather import Findings, counting
from regimescope.monitor.ui.palette import Theme, colors

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_TONES = {"critical": "critical", "warning": "watch", "info": "info", "ok": "ok"}
_NOTHING = "<p>None.</p>"


def html(found: Findings) -> str:
    """The file."""
    report = found.report
    parts = [
        f"<h1>{escape(found.name)}</h1>",
        f'<p class="muted">{escape(_origin(found))}</p>',
        f'<p class="verdict" style="--tone:var(--{_TONES[report.verdict]})">{escape(found.verdict)}</p>',
        *_alerts(found),
        _section("What moved first", _moved(found)),
        _section("Evidence", charts(found.charts)),
        _section("Which regime drives it", f"<p>{escape(found.attribution)}</p>"),
    ]
    if report.lint or found.bounds:
        parts.append(_section("Bounds", _bounds(found)))
    if found.rollouts:
        parts.append(_section("Responses that show it", "".join(_rollouts(found))))
    parts.append(_section("What could not be seen", _blind(found)))
    parts.append(_section("Where the numbers come from", "".join(_sources(found))))
    return page(f"{found.name}: report", parts)


def page(title: str, parts: Iterable[str]) -> str:
    """A whole file around these parts, which are markup already."""
    css = (Path(__file__).parent / "report.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_palette()}\n{css}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _palette() -> str:
    """Colours as variables and as classes of the curves, for both themes."""

    def rules(theme: Theme) -> str:
        return "".join(f"--{name}:{value};" for name, value in colors(theme).items())

    classes = "".join(
        f".line-{name}{{stroke:var(--{name})}}.fill-{name}{{fill:var(--{name})}}" for name in colors("light")
    )
    dark = f"@media (prefers-color-scheme: dark){{:root{{{rules('dark')}}}}}"
    return f":root{{{rules('light')}}}\n{dark}\n{classes}"


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body or _NOTHING}"


def _origin(found: Findings) -> str:
    report, origin = found.report, found.origin
    keys = f", keys of {origin.framework}" if origin is not None and origin.framework else ""
    read = "recorded" if origin is None else f"read as {origin.format}{keys}"
    last = "" if report.last_step is None else f", last step {report.last_step:,}"
    return f"{read}; {report.steps:,} steps{last}; made by {found.made_by}"


def _alerts(found: Findings) -> list[str]:
    alerts = counting(found.report)
    if not alerts:
        return []
    parts = ["<h2>What was found, and what to do</h2>"]
    for alert in alerts:
        tone = _TONES[str(alert["severity"])]
        where = f" ({escape(str(alert['slice']))})" if alert["slice"] else ""
        parts.append(
            f'<h3><span class="word" style="--tone:var(--{tone})">{escape(str(alert["severity"]))}</span> '
            f"{escape(str(alert['title']))}{where}</h3>"
            f"<p>Onset step {alert['step_onset']}, detected step {alert['step_detected']}, "
            f"{escape(str(alert['state']))}. {escape(str(alert['text']))}</p>"
        )
        parts += [f"<p><b>{name}</b> {escape(text)}</p>" for name, text in advice(alert)]
        if commands := to_copy(alert):
            parts.append(f"<pre>{escape(chr(10).join(commands))}</pre>")
        if plan := rescue(alert):
            lines, copied = plan
            parts.append("<h4>Rescue plan</h4>")
            parts += [f"<p><b>{escape(label)}:</b> {escape(text)}</p>" for label, text in lines]
            parts += [f"<pre>{escape(chr(10).join(copied))}</pre>"] if copied else []
    return parts


def advice(alert: dict[str, object]) -> list[tuple[str, str]]:
    """Cause, remedy and what stands against it, as far as they are known."""
    remedy = alert["remedy"]
    text = str(remedy.get("text") or "") if isinstance(remedy, dict) else ""
    said = [
        ("Cause:", str(alert.get("cause") or "")),
        ("What to do:", text),
        ("But:", "" if alert.get("rescue") else str(alert.get("obstacle") or "")),
    ]
    return [(name, words) for name, words in said if words and not alert["inhibited_by"]]


def to_copy(alert: dict[str, object]) -> list[str]:
    """Commands of the remedy; the way back of an alert with a rescue plan is the plan's."""
    commands, remedy = alert.get("commands"), alert["remedy"]
    back = isinstance(remedy, dict) and remedy.get("checkpoint") is not None
    return [] if not isinstance(commands, list) or (back and alert.get("rescue")) else [str(c) for c in commands]


def rescue(alert: dict[str, object]) -> tuple[list[tuple[str, str]], list[str]] | None:
    """The rescue plan of a critical alert: its words, and what to copy."""
    plan = alert.get("rescue")
    if not isinstance(plan, dict) or alert["inhibited_by"]:
        return None
    copied = [str(plan["live_command"])] if plan["live_command"] else [str(c) for c in plan["commands"]]
    return [(str(label), str(text)) for label, text in plan["told"]], copied


def _moved(found: Findings) -> str:
    rows = [[f"{d.step:,}", what, f"{shown(d.before)} → {shown(d.after)}", f"{d.seen:,}"] for what, d in found.moved]
    note = (
        '<p class="muted">The step is where the change began, by the evidence that the rules use; a change alone is no '
        "alert.</p>"
    )
    return (
        table(["step", "what", "from → to", "sure at"], rows) + note if rows else "<p>Nothing left its reference.</p>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>" if body else _NOTHING


MARKS = "Solid line: onset. Dotted: detection. Dashed: bounds changed. Numbers beside the names: the last value."


def charts(drawn: Sequence[Chart], note: str = MARKS) -> str:
    """The charts in a grid, each with its key."""
    figures = []
    for chart in drawn:
        picture = svg(chart)
        keys = "".join(map(_key, chart.lines))
        if picture:
            figures.append(f"<figure><figcaption><b>{escape(chart.title)}</b>{keys}</figcaption>{picture}</figure>")
    if not figures:
        return ""
    return f'<div class="charts">{"".join(figures)}</div><p class="muted">{escape(note)}</p>'


def _key(line: Line) -> str:
    dashed = " dashed" if line.dashed else ""
    sample = f'<span class="key{dashed}" style="border-color:var(--{line.color})"></span>'
    return f"<span>{sample}{escape(line.label)} {shown(line.y[-1])}</span>"


def _bounds(found: Findings) -> str:
    values = ", ".join(f"{name} {shown(value)}" for name, value in found.bounds.items())
    parts = [f"<p>In force: {escape(values)} (absolute weights).</p>"] if values else []
    parts += [
        f"<p>From the configuration, no detection: {escape(str(alert['text']))}</p>" for alert in found.report.lint
    ]
    return "".join(parts)


def _rollouts(found: Findings) -> list[str]:
    parts, before = [], ""
    for rollout in found.rollouts:
        if rollout.why != before:
            parts.append(f"<h3>{escape(rollout.why.capitalize())}</h3>")
            before = rollout.why
        parts.append(
            f"<details><summary>Step {rollout.step:,}: {escape(rollout.line)}</summary>"
            f"<pre>{escape(rollout.prompt)}</pre><pre>{escape(rollout.response)}</pre></details>"
        )
    return parts


def _blind(found: Findings) -> str:
    rows = blind_rows(found)
    return table(["rules", "why", "what to log"], rows) if rows else "<p>All rules saw what they need.</p>"


def blind_rows(found: Findings) -> list[tuple[str, str, str]]:
    """Rules that could not see, why, and what to log."""
    return grouped([blind for blind in found.report.blind if blind["status"] != "warming"])


def _sources(found: Findings) -> list[str]:
    parts, origin = [], found.origin
    if origin is None:
        parts.append("<p>Recorded by the Recorder, under our own names (docs/metrics.md).</p>")
    else:
        rows = [[s.name, s.source_key, s.transform or "", s.trust or ""] for s in origin.sources]
        parts.append(table(["ours", "key of the log", "transform", "trust"], rows))
        if origin.unmapped:
            parts.append(f"<p>Kept under their own name: {escape(', '.join(origin.unmapped))}.</p>")
        parts += [f"<p>Note: {escape(note)}.</p>" for note in origin.notes]
    return parts + [f"<p>Wrong with the files: {escape(text)}</p>" for text in found.report.troubles]
