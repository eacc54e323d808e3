"""A report as Markdown, for an issue or a chat: the same as in html.py without the charts. Texts of a run are code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from regimescope.monitor.report.charts import shown
from regimescope.monitor.report.gather import Findings, counting
from regimescope.monitor.report.html import advice, blind_rows, rescue, to_copy


def markdown(found: Findings) -> str:
    """The file."""
    report = found.report
    parts = [
        f"# {code(found.name)}",
        f"**{plain(found.verdict)}**",
        f"{report.steps:,} steps. {plain(found.attribution)}",
    ]
    for alert in counting(report):
        head = f"## {alert['severity']}: {plain(str(alert['title']))}"
        where = f"Onset step {alert['step_onset']}, detected step {alert['step_detected']}, {alert['state']}."
        parts += [head, f"{where} {plain(str(alert['text']))}"]
        parts += [f"{name} {plain(text)}" for name, text in advice(alert)]
        if commands := to_copy(alert):
            parts.append(fenced("\n".join(commands)))
        if plan := rescue(alert):
            lines, copied = plan
            parts += ["### Rescue plan", *(f"- {label}: {plain(text)}" for label, text in lines)]
            parts += [fenced("\n".join(copied))] if copied else []
    parts.append("## What moved first")
    rows = [[str(d.step), what, f"{shown(d.before)} → {shown(d.after)}", str(d.seen)] for what, d in found.moved]
    parts.append(table(["step", "what", "from → to", "sure at"], rows) if rows else "Nothing left its reference.")
    if report.lint:
        parts += ["## Bounds, from the configuration", *(f"- {plain(str(alert['text']))}" for alert in report.lint)]
    if found.rollouts:
        parts.append("## Responses that show it")
        parts += [f"{r.why}, step {r.step}: {plain(r.line)}\n\n{fenced(r.response)}" for r in found.rollouts]
    blind = blind_rows(found)
    if blind:
        parts += ["## What could not be seen", table(["rules", "why", "what to log"], blind)]
    if found.origin is not None:
        parts.append("## Where the numbers come from")
        parts.append(
            table(["ours", "key", "trust"], [[s.name, s.source_key, s.trust or ""] for s in found.origin.sources])
        )
    return "\n\n".join(parts) + f"\n\nMade by {found.made_by}.\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [f"| {' | '.join(plain(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text in which nothing is markup.

    >>> plain("a*b | <i>")
    'a\\\\*b \\\\| \\\\<i>'
    """
    return re.sub(r"([\\`*_\[\]<|#!])", r"\\\1", text.replace("\n", " "))


def code(text: str) -> str:
    """A short text in code."""
    return "`" + text.replace("`", "'").replace("\n", " ") + "`"


def fenced(text: str) -> str:
    """A text as a block of code, whatever is in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{fence}text\n{text}\n{fence}"
