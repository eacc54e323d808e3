"""`regimescope report RUN|LOG -o report.html`: what happened, when it began, what drove it and what to change."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from regimescope.monitor.errors import ReportError
from regimescope.monitor.imports.command import add_options, request_of
from regimescope.monitor.imports.either import log_of, read_either
from regimescope.monitor.report.gather import Findings, gather
from regimescope.monitor.report.html import html
from regimescope.monitor.report.markdown import markdown
from regimescope.monitor.wire import plain

FORMS = (".html", ".md", ".json")


def main(argv: list[str]) -> int:
    """Write the report. Raises ReportError, RunError, ImportFailed."""
    options = _parser().parse_args(argv)
    out = Path(options.out)
    check_form(out)
    with read_either(options.run, options.root, request_of(options)) as (view, log):
        source = log_of(options.run, options.root)
        found = gather(view, log, source.name if source is not None else view.run.path)
    write(out, _text(out, found))
    print(f"{found.verdict}\n{out}")
    return 0


def check_form(out: Path) -> None:
    """Before anything is read. Raises ReportError."""
    if out.suffix not in FORMS:
        raise ReportError(f"{out}: the ending says the form, want one of {', '.join(FORMS)}")
    if not out.absolute().parent.is_dir():
        raise ReportError(f"{out}: there is no folder {out.absolute().parent}")


def write(out: Path, text: str) -> None:
    """Raises ReportError."""
    try:
        out.write_text(text, "utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"cannot write {out}: {error.strerror}") from None


def _text(out: Path, found: Findings) -> str:
    if out.suffix == ".html":
        return html(found)
    return markdown(found) if out.suffix == ".md" else as_json(asdict(found))


def as_json(record: dict[str, object]) -> str:
    """All that is told, for machines."""
    return json.dumps(plain(record), indent=2, ensure_ascii=False) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope report",
        description="What happened in a run, as one file: it opens from disk and fetches nothing.",
    )
    parser.add_argument("run", metavar="RUN|LOG", help="run folder, its path below the root, or a log of any trainer")
    parser.add_argument(
        "-o", "--out", default="report.html", help="file to write: .html, .md or .json (default: report.html)"
    )
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    add_options(parser)
    return parser
