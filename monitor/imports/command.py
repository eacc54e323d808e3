"""`regimescope import LOG...` and `regimescope watch LOG`: other people's logs as runs below the root.

regimescope import train.log                        a run of its own below ./runs, for serve, check, report
regimescope watch train.log                         the same while the job goes on, until Ctrl-C
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from regimescope.monitor.endpoint import is_alive, read_endpoint
from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.imports import aliases
from regimescope.monitor.imports.formats import Options
from regimescope.monitor.imports.mapping import parse_map
from regimescope.monitor.imports.run import Request, import_log, name_of, read_into
from regimescope.monitor.imports.text import Progress
from regimescope.monitor.imports.write import Imported
from regimescope.monitor.launch import list_segments
from regimescope.monitor.lint import settings_of
from regimescope.monitor.places import default_root

_LISTED = 8
_BAR_FROM = 8 << 20
"Bytes from which reading is shown."


def main(argv: list[str]) -> int:
    """Import every log; exit code 2 where one was refused, the others are imported."""
    options = _parser().parse_args(argv)
    logs = [Path(log) for log in options.logs]
    if options.name and len(logs) > 1:
        raise ImportFailed("--name is of one log: leave it out, or import them one by one")
    root, refused = default_root(options.root), 0
    for log in logs:
        try:
            done = import_log(log, root, request_of(options), bar(log))
            print(told(done, log))
            print(f"  look at it: regimescope check {done.folder}    or: regimescope serve {root}")
        except ImportFailed as error:
            refused += 1
            print(f"regimescope: {error}", file=sys.stderr)
        except OSError as error:
            refused += 1
            print(f"regimescope: cannot read {log}: {error.strerror}", file=sys.stderr)
    return 2 if refused else 0


def watch(argv: list[str]) -> int:
    """Feed a growing log into a run below the root until Ctrl-C."""
    options = _watch_parser().parse_args(argv)
    log, root = Path(options.log), default_root(options.root)
    request = request_of(options, follow=True)
    folder = root / (request.name or name_of(log))
    if not log.exists():
        raise ImportFailed(f"no log {log} yet: start the job first, or touch the file, and it is waited for")
    _make_way(folder)
    print(_where(root, folder), flush=True)
    try:
        read_into(log, folder, request, idle=_forever)
    except OSError as error:
        raise ImportFailed(f"cannot read {log}: {error.strerror}") from None
    return 0


def _forever() -> bool:
    return False


def _make_way(folder: Path) -> None:
    """A watch that begins again reads its log again. Raises ImportFailed for a folder that no watch has made."""
    segments = [path for name, path in list_segments(folder) if not name.is_monitor]
    for path in segments:
        with open(path, "rb") as file:
            if b'"following":true' not in file.readline(1 << 20):
                raise ImportFailed(f"{folder} is another run: give the watch another --name")
    if folder.exists() and not segments and any(folder.iterdir()):
        raise ImportFailed(f"{folder} holds other things: give the watch another --name")
    for path in segments:
        path.unlink()


def _where(root: Path, folder: Path) -> str:
    endpoint = read_endpoint(root)
    if endpoint is not None and is_alive(endpoint):
        return f"feeding {folder}; it is on {endpoint.address}/?run={folder.name}"
    return f"feeding {folder}; to see it: regimescope serve {root}"


def request_of(options: argparse.Namespace, *, follow: bool = False) -> Request:
    """What the options of a command that takes logs ask for. Raises ImportFailed."""
    user_map = parse_map(options.map or ())
    columns = tuple((key, name) for key, name in user_map.items() if name == "step")
    return Request(
        options=Options(pattern=options.pattern, run=options.of_run, columns=columns, follow=follow),
        framework=options.framework,
        user_map={key: name for key, name in user_map.items() if name != "step"},
        name=getattr(options, "name", None),
        ratio_source=options.ratio_source,
        config=dict(settings_of(options.config or ())),
        rollouts=None if options.rollouts is None else Path(options.rollouts),
    )


def told(done: Imported, log: Path) -> str:
    """What became of a log, for people."""
    framework = f", keys of {done.framework}" if done.framework else ", keys of no known framework"
    lines = [f"{log}: {done.format}{framework}", f"  {_count(done.steps, 'step')}, {done.first} to {done.last}"]
    if done.evaluations:
        lines[-1] += f", {_count(done.evaluations, 'evaluation')}"
    if done.envs:
        lines.append(f"  environments: {', '.join(sorted(done.envs))}")
    if len(done.launches) > 1:
        spans = ", ".join(f"{a} to {b}" for a, b in done.launches)
        lines.append(
            f"  {len(done.launches)} launches (the step fell or came again): steps {spans}; of what was done twice the "
            "later one counts"
        )
    mapped = [f"{name} <- {', '.join(keys)}" for name, keys in done.mapped.items()]
    lines.append("  known: " + ("; ".join(mapped) or "none of its keys"))
    if done.unmapped:
        more = f" and {len(done.unmapped) - _LISTED} more" if len(done.unmapped) > _LISTED else ""
        lines.append(f"  kept under their own name: {', '.join(done.unmapped[:_LISTED])}{more}")
    lines += [f"  note: {what}" for what in done.left_out]
    if "accuracy" not in done.mapped:
        lines.append("  no accuracy: where a key is the share of right answers, say so with --map KEY=accuracy")
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bar(log: Path) -> Progress | None:
    """A progress bar on a terminal, for a large file."""
    if not sys.stderr.isatty() or not log.is_file() or log.stat().st_size < _BAR_FROM:
        return None
    width = max(10, min(40, shutil.get_terminal_size().columns - 40))
    started, last = time.monotonic(), [0.0]

    def show(done: int, size: int) -> None:
        now = time.monotonic()
        if now - last[0] < 0.2 and done < size:
            return
        last[0] = now
        filled = int(width * done / max(1, size))
        rate = done / max(1e-9, now - started) / 1e6
        text = f"\r[{'#' * filled}{'.' * (width - filled)}] {done / 1e6:,.0f} of {size / 1e6:,.0f} MB, {rate:.0f} MB/s"
        print(text, end="\n" if done >= size else "", file=sys.stderr, flush=True)

    return show


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that takes a foreign log."""
    parser.add_argument(
        "--map",
        action="append",
        metavar="KEY=NAME",
        help="the log's KEY is our NAME (accuracy, say), or `step`; may be repeated",
    )
    parser.add_argument(
        "--framework", choices=aliases.frameworks(), help="whose keys these are (default: told by the keys)"
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="for text that no reader knows: named groups are metrics, `step` the step"
    )
    parser.add_argument(
        "--config",
        action="append",
        metavar="FILE|key=value",
        help="settings of the job that the log does not hold: the bounds among them are linted; may be repeated",
    )
    parser.add_argument("--run", dest="of_run", metavar="NAME", help="which run of a file that holds several")
    parser.add_argument(
        "--rollouts", metavar="DUMP", help="rollouts of the run: verl's JSON lines, TRL's completions, file or folder"
    )
    parser.add_argument(
        "--ratio-source",
        choices=("behaviour", "proximal", "infer"),
        help="what the importance ratio divides by: a log does not tell (docs/import.md)",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope import", description="Import logs of any trainer as runs. The format is told by the content."
    )
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="console log, JSON lines, CSV, trainer_state.json, notebook, ..."
    )
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument("--name", help="name of the run folder (default: after the log)")
    add_options(parser)
    return parser


def _watch_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope watch", description="Feed a growing log of any trainer into a run, until Ctrl-C."
    )
    parser.add_argument("log", metavar="LOG", help="a console log or JSON lines that a job writes now")
    parser.add_argument("--root", help="folder above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument("--name", help="name of the run folder (default: after the log)")
    add_options(parser)
    return parser
