"""`regimescope compare A B`: which settings differ, in which metric two runs go apart first, and their curves over a
common axis (`-o compare.html`). A and B are runs or logs.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import cast

from regimescope.monitor import query
from regimescope.monitor.compare import By, Divergence
from regimescope.monitor.departures import watched_metrics
from regimescope.monitor.imports.command import add_options, request_of
from regimescope.monitor.imports.either import log_of, read_either
from regimescope.monitor.private import RunView
from regimescope.monitor.report.charts import Chart, Line, shown
from regimescope.monitor.report.command import as_json, check_form, write
from regimescope.monitor.report.gather import POINTS, panels
from regimescope.monitor.report.html import charts, page, table
from regimescope.monitor.report.markdown import table as markdown_table
from regimescope.monitor.ui.facts import facts_of
from regimescope.monitor.ui.two_runs import Side, apart, axis, read_side, setting_rows

AXES: dict[By, str] = {"step": "step", "tokens": "tokens trained on", "onset": "steps from the onset"}
_MOST_ROWS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What two runs have in common, and what not."""

    a: str
    b: str
    by: By
    onsets: tuple[int | None, int | None]
    "Where each began to fail."
    apart: list[Divergence]
    "Metrics in which they go apart, the first first."
    settings: list[dict[str, str]]
    "Those that differ."
    charts: list[Chart]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if not self.apart:
            return "The two go apart in no metric that both have."
        first = self.apart[0]
        where = f"at {AXES[self.by]} {first.x:,.0f}"
        return f"They go apart first in {first.name}, {where}: {shown(first.a)} against {shown(first.b)}."


def main(argv: list[str]) -> int:
    """Print the comparison, and write it where a file is named. Raises RunError, ImportFailed, ReportError."""
    options = _parser().parse_args(argv)
    out = None if options.out is None else Path(options.out)
    if out is not None:
        check_form(out)
    with contextlib.ExitStack() as stack:
        read = [
            stack.enter_context(read_either(what, options.root, request_of(options))) for what in (options.a, options.b)
        ]
        names = [_name(what, options.root, view) for what, (view, _) in zip((options.a, options.b), read, strict=True)]
        found = compared([view for view, _ in read], names, cast(By, options.by))
    if out is not None:
        write(out, _text(out, found))
    print("\n".join(as_text(found)) if out is None else f"{found.sentence}\n{out}")
    return 0


def _name(what: str, root: str | None, view: RunView) -> str:
    log = log_of(what, root)
    return log.name if log is not None else view.run.path


def compared(views: Sequence[RunView], names: Sequence[str], by: By) -> Compared:
    """Of two runs that were read."""
    sides: list[Side] = []
    for view in views:
        facts = facts_of(view.monitor, view.run.path)
        assert facts is not None  # the view has just read it
        with view.monitor.store.cursor() as con:
            sides.append(read_side(con, facts, view.monitor.rules))
    a, b = sides
    onsets = (a.onset or 0, b.onset or 0)
    return Compared(
        a=names[0], b=names[1], by=by, onsets=(a.onset, b.onset),
        apart=apart(a, b, watched_metrics(views[0].monitor.rules), by, onsets), settings=setting_rows(a, b),
        charts=_charts(views, sides, by, onsets),
    )  # fmt: skip


def _charts(views: Sequence[RunView], sides: Sequence[Side], by: By, onsets: tuple[int, int]) -> list[Chart]:
    """A chart per metric that one of them has; A solid, B dashed."""
    drawn = []
    for name, label, _ in (line for panel in panels() for line in panel["lines"]):
        lines = []
        for letter, color, view, side, onset in zip("AB", ("info", "watch"), views, sides, onsets, strict=True):
            if name not in side.names:
                continue
            with view.monitor.store.cursor() as con:
                found = query.envelopes(con, view.run.run_key, 0, [name], None, None, POINTS)[name]
            x = [float(at) for at in axis(side, found.steps, by, onset)]
            y = [float("nan") if value is None else float(value) for value in found.values]
            lines.append(Line(label=letter, color=color, x=x, y=y, dashed=letter == "B"))
        if len(lines) == len(sides):
            drawn.append(Chart(title=f"{name} ({label})", lines=lines, x_title=AXES[by]))
    return drawn


def as_text(found: Compared) -> list[str]:
    """For people."""
    lines = [f"A {found.a}", f"B {found.b}", found.sentence]
    lines += [f"  {d.name}: {AXES[found.by]} {d.x:,.0f}, A {shown(d.a)}, B {shown(d.b)}" for d in found.apart]
    lines.append(f"{len(found.settings)} settings differ" + (":" if found.settings else ""))
    lines += [f"  {row['setting']}: {row['A']} | {row['B']}" for row in found.settings[:_MOST_ROWS]]
    lines += [f"  and {len(found.settings) - _MOST_ROWS} more"] if len(found.settings) > _MOST_ROWS else []
    return lines


def _text(out: Path, found: Compared) -> str:
    if out.suffix == ".json":
        return as_json(asdict(found))
    apart_rows = [[d.name, f"{d.x:,.0f}", shown(d.a), shown(d.b)] for d in found.apart]
    setting = [[row["setting"], row["A"], row["B"]] for row in found.settings]
    heads = (["metric", AXES[found.by], "A", "B"], ["setting", "A", "B"])
    if out.suffix == ".md":
        parts = [f"A: `{found.a}`, B: `{found.b}`", found.sentence, markdown_table(heads[0], apart_rows),
                 "## Settings that differ", markdown_table(heads[1], setting)]  # fmt: skip
        return "\n\n".join(parts) + "\n"
    parts = [
        f"<h1>{escape(found.a)} and {escape(found.b)}</h1>",
        f'<p class="verdict" style="--tone:var(--info)">{escape(found.sentence)}</p>',
        f"<p>A: {escape(found.a)} (solid). B: {escape(found.b)} (dashed). Axis: {AXES[found.by]}.</p>",
        "<h2>Where they go apart</h2>" + table(heads[0], apart_rows),
        "<h2>Settings that differ</h2>" + table(heads[1], setting),
        "<h2>Curves</h2>" + charts(found.charts, "Numbers beside the names: the last value."),
    ]
    return page(f"{found.a} and {found.b}", parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope compare", description="Two runs or logs: what differs, and where they go apart first."
    )
    parser.add_argument("a", metavar="A", help="run folder, its path below the root, or a log")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument("--by", choices=list(AXES), default="step", help="common axis (default: step)")
    parser.add_argument("-o", "--out", help="file to write: .html (with the curves), .md or .json")
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    add_options(parser)
    return parser
