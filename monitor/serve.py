"""`regimescope serve [ROOT]`: ingestion, detectors, JSON routes and pages of all runs below ROOT, in one process.

ROOT is else $REGIMESCOPE_ROOT, else ./runs, and is created if missing. A flag beats the environment. Listens on
loopback unless told otherwise. Exit codes: 0 also when another server already has the root (its address is printed),
2 a mistake such as a busy port, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import streamlit as st

from regimescope.monitor.ui.application import app_options, run
from regimescope.monitor.ui.security import load_control_token
from regimescope.monitor.ui.settings import DEFAULT_PORT, Settings, parse_port


def main(argv: list[str]) -> int:
    """Serve until interrupted. Raises RegimescopeError for a mistake in the options."""
    settings = settings_from(_parser().parse_args(argv), os.environ)
    app = st.App(**app_options(settings))
    run(app, settings)
    return 0


def settings_from(args: argparse.Namespace, environ: os._Environ[str] | dict[str, str]) -> Settings:
    """The environment's values beaten by flags, checked together: --read-only may be what makes a host acceptable."""
    given = {
        "REGIMESCOPE_ROOT": args.root,
        "REGIMESCOPE_HOST": args.host,
        "REGIMESCOPE_PORT": args.port and str(parse_port(args.port, "--port")),
        "REGIMESCOPE_READ_ONLY": "1" if args.read_only else None,
        "REGIMESCOPE_CONTROL_TOKEN": args.control_token_file and load_control_token(Path(args.control_token_file)),
        "REGIMESCOPE_ACTOR": args.actor,
    }
    settings = Settings.from_environment({**environ, **{name: value for name, value in given.items() if value}})
    return replace(settings, open_browser=args.open)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regimescope serve", description="Ingest, detect and show the runs below a root in the browser."
    )
    parser.add_argument(
        "root", nargs="?", metavar="ROOT", help="folder of run folders (default: $REGIMESCOPE_ROOT, else ./runs)"
    )
    parser.add_argument("--host", help="address to listen on (default: $REGIMESCOPE_HOST, else 127.0.0.1)")
    parser.add_argument("--port", help=f"port, 0 = any free one (default: $REGIMESCOPE_PORT, else {DEFAULT_PORT})")
    parser.add_argument(
        "--read-only", action="store_true", help="show everything, send no command ($REGIMESCOPE_READ_ONLY=1)"
    )
    parser.add_argument(
        "--control-token-file",
        metavar="FILE",
        help="file of mode 0600 with the token that the browser must type before a command; needed with another --host "
        "($REGIMESCOPE_CONTROL_TOKEN holds the token itself)",
    )
    parser.add_argument(
        "--actor", help="who commands are by (default: $REGIMESCOPE_ACTOR, else the user of the operating system)"
    )
    parser.add_argument(
        "--open", action="store_true", help="show the page in the default browser once the server is up"
    )
    return parser
