"""`regimescope notify list|test [--root ROOT]`: the targets of a root, their URLs masked, and a test to one or all.

ROOT is else $REGIMESCOPE_ROOT, else ./runs. Works beside a running server and without one: it reads notify.toml and
the environment itself. Exit codes: 0 good, 1 a target did not take the test, 2 a mistake in the file.
"""

from __future__ import annotations

import argparse

from regimescope.monitor.endpoint import read_endpoint
from regimescope.monitor.errors import NotifyFileError
from regimescope.monitor.notify.message import test_message
from regimescope.monitor.notify.post import check, masked, post
from regimescope.monitor.notify.targets import Target, load_plan, notify_path
from regimescope.monitor.notify.told import quiet_text
from regimescope.monitor.places import default_root
from regimescope.monitor.tables import as_table


def main(argv: list[str]) -> int:
    """Raises NotifyFileError."""
    options = _parser().parse_args(argv)
    root = default_root(options.root)
    plan = load_plan(root)
    if not plan.targets:
        print(f"no targets: {notify_path(root)} is not there or names none, and REGIMESCOPE_NOTIFY is not set")
        return 0
    if options.what == "list":
        print(as_table(("target", "URL", "from", "on", "quiet", "interval s"), [_row(t) for t in plan.targets]))
        return 0
    check(plan)
    names = [target.name for target in plan.targets]
    if options.target is not None and options.target not in names:
        raise NotifyFileError(f"no target {options.target!r}; there is {', '.join(names)}")
    known = read_endpoint(root)
    text = test_message(plan.link or (known.address if known else ""))
    failed = False
    for target in plan.targets:
        if options.target in (None, target.name):
            why = post(target.url, text.title, text.body, kind=text.kind)
            failed = failed or bool(why)
            print(f"{target.name}: {f'not delivered: {why}' if why else 'delivered'}")
    return 1 if failed else 0


def _row(target: Target) -> tuple[str, ...]:
    on, quiet = ", ".join(target.on), quiet_text(target.quiet)
    return target.name, masked(target), target.severity, on, quiet, f"{target.interval_s:g}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="regimescope notify", description="Targets of notices about alerts.")
    parser.add_argument("what", choices=("list", "test"), help="show the targets, or send each a test")
    parser.add_argument("--root", help="folder of run folders (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument("--target", metavar="NAME", help="test this one alone")
    return parser
