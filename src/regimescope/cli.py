"""The `regimescope` command: a table from sub-command to module, each loaded when it is asked for.

`regimescope --help` works from the bare wheel; a command whose packages are missing says which extra to install and
exits 2. Every command module has `main(argv) -> int`. Exit codes: 0 good, 1 a critical alert (`check`) or a refused
command, 2 a user's mistake, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from regimescope import __version__
from regimescope.monitor.errors import RegimescopeError


@dataclass(frozen=True, slots=True)
class Command:
    module: str
    extra: str
    "Extra that brings its packages; empty = none needed."
    help: str
    prefix: tuple[str, ...] = ()
    "Arguments put before the user's, for modules that serve several commands."
    entry: str = "main"
    "Function of the module."


_STEER = "regimescope.monitor.steer"
COMMANDS = {
    "train": Command("regimescope.trainer.train", "trainer", "run the reference trainer"),
    "lab": Command(
        "regimescope.trainer.lab.command", "app,trainer", "the regime study on the tiny policy, with tables and figures"
    ),
    "warm-start": Command("regimescope.trainer.warm_start", "trainer", "make the tiny policy's warm starts"),
    "serve": Command("regimescope.monitor.serve", "app", "ingest, detect, show the runs below a root in the browser"),
    "runs": Command("regimescope.monitor.runs", "monitor", "list the runs below a root"),
    "check": Command("regimescope.monitor.check", "monitor", "run the detectors over a run; a critical alert exits 1"),
    "import": Command(
        "regimescope.monitor.imports.command", "monitor", "read logs of any trainer as runs below the root"
    ),
    "watch": Command(
        "regimescope.monitor.imports.command", "monitor", "feed a growing log of any trainer into a run", (), "watch"
    ),
    "report": Command("regimescope.monitor.report.command", "monitor", "what happened in a run or a log, as one file"),
    "compare": Command(
        "regimescope.monitor.report.compare", "monitor", "two runs or logs: what differs, and where first"
    ),
    "lint": Command(
        "regimescope.monitor.lint", "", "the window a framework makes of its clip settings, and what it courts"
    ),
    "notify": Command("regimescope.monitor.notify.command", "app", "list the targets of notices, send them a test"),
    "doctor": Command("regimescope.monitor.doctor", "monitor", "say what is wrong around the runs, with advice"),
    "prune": Command("regimescope.monitor.prune", "monitor", "free disk space: old checkpoints, the index; asks first"),
    "sql": Command("regimescope.monitor.sql", "monitor", "one reading query over a run; without SQL the views"),
    "export": Command("regimescope.monitor.export", "monitor", "write a run's numbers as CSV, Parquet or JSON lines"),
    "bounds": Command(_STEER, "", "ask a running trainer for other clip bounds", ("set_bounds",)),
    "pause": Command(_STEER, "", "pause a running trainer at its next step boundary", ("pause",)),
    "resume": Command(_STEER, "", "let a paused trainer go on", ("resume",)),
    "checkpoint": Command(_STEER, "", "ask a running trainer for a checkpoint", ("checkpoint",)),
    "stop": Command(_STEER, "", "stop a running trainer at its next step boundary", ("stop",)),
    "rollback": Command(_STEER, "", "let a running trainer go on from one of its checkpoints", ("rollback",)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if args[0] in ("-V", "--version"):
        print(f"regimescope {__version__}")
        return 0
    name, rest = args[0], args[1:]
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return _fail(f"unknown command {name!r}.{hint} See `regimescope --help`.")
    return _run(name, COMMANDS[name], rest)


def usage() -> str:
    """The text of `regimescope --help`."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    head = ["usage: regimescope COMMAND [options]", "", "Live diagnostics for RLVR training runs.", "", "commands:"]
    return "\n".join([*head, *rows, "", "`regimescope COMMAND --help` lists the options of a command."])


def _run(name: str, command: Command, rest: list[str]) -> int:
    try:
        entry: Callable[[list[str]], int] = getattr(import_module(command.module), command.entry)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "regimescope":
            raise
        install = f"pip install 'regimescope[{command.extra}]'"
        return _fail(f"`regimescope {name}` needs the package {error.name!r}. Install it with: {install}")
    try:
        return entry([*command.prefix, *rest])
    except RegimescopeError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `regimescope runs | head`
        sys.stderr.close()
        return 0


def _fail(message: str) -> int:
    print(f"regimescope: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
