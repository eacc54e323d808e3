"""`regimescope bounds|pause|resume|checkpoint|stop|rollback RUN`: asks a running trainer for something and waits for
its answer.

Through the server of the root when one is alive, else by a monitor segment of its own and the control file. Bounds are
absolute weights; those not given stay as they are in force. Exit codes: 0 applied or not answered yet, 1 rejected or
expired, 2 a user's mistake. Standard library only.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor.await_ack import Answers, Outcome, median_step_s
from regimescope.monitor.bounds import Bounds
from regimescope.monitor.commands import MonitorSegment, issue
from regimescope.monitor.control import bounds_problems, read_control_state
from regimescope.monitor.endpoint import Endpoint, is_alive, read_endpoint
from regimescope.monitor.errors import ControlError, RunError
from regimescope.monitor.launch import Launch, newest_launch
from regimescope.monitor.wire import plain

TTL_S = 300.0
MIN_WAIT_S = 60.0
_NAMES = {"set_bounds": "bounds"}
_OPTIONS = {"pos_min": "pos.w_min", "pos_max": "pos.w_max", "neg_min": "neg.w_min", "neg_max": "neg.w_max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, ready to be sent."""

    run_dir: Path
    "Folder of the run."
    launch: Launch
    "Its newest launch, the one that is asked."
    kind: str
    "One of the kinds of control.py."
    args: dict[str, object]
    "set_bounds: all four absolute weights; rollback: the step of the checkpoint, and they."
    expect: int | None
    "Revision that was seen; None = any."
    why: str
    "Reason."
    by: str
    "Who asks."
    until: float
    "Unix seconds; later the command is void."


def main(argv: list[str]) -> int:
    """`argv`: the kind, then the user's arguments. Raises RunError, ControlError, BoundsError for a user's mistake."""
    kind, *rest = argv
    options = _parser(kind).parse_args(rest)
    run_dir, root = find_run(options.run, options.root)
    launch = newest_launch(run_dir)
    answers = Answers(run_dir, launch)
    if answers.ended is not None:
        raise ControlError(f"{run_dir} has ended ({answers.ended}): nobody reads a command")
    step_s = median_step_s(launch.segment)
    expect, args = _arguments(kind, options, run_dir, launch)
    if kind not in launch.can:
        offered = ", ".join(_NAMES.get(item, item) for item in launch.can) or "nothing"
        raise ControlError(f"{run_dir} does not take {_NAMES.get(kind, kind)!r}; it takes: {offered}")
    ask = Ask(
        run_dir=run_dir, launch=launch, kind=kind, args=args, expect=expect, why=options.why, by=options.by,
        until=time.time() + max(TTL_S, 3 * step_s),
    )  # fmt: skip
    command_id = send(ask, root)
    wait = options.wait if options.wait is not None else max(MIN_WAIT_S, 3 * step_s)
    outcome = answers.wait(command_id, wait)
    if outcome is None and answers.ended is not None:
        print(f"no answer: the trainer has ended ({answers.ended})")
        return 1
    return _report(outcome, ask)


def find_run(run: str, root: str | None) -> tuple[Path, Path | None]:
    """The run folder and the root above it where that is known. `run`: a run folder, or its path below the root.

    Raises RunError.
    """
    above = Path(root or os.environ.get("REGIMESCOPE_ROOT") or "runs")
    for folder in (above / run, Path(run)) if root else (Path(run), above / run):
        if folder.is_dir():
            inside = folder.resolve().is_relative_to(above.resolve())
            return folder, above if inside else None
    raise RunError(
        f"no run folder {run!r}, neither here nor below {above}: give a run folder, or --root and its path below it"
    )


def send(ask: Ask, root: Path | None) -> str:
    """Through the server where one is alive, else directly; the command's id. Raises ControlError."""
    found = _server(ask.run_dir, root)
    if found is not None:
        return _post(ask, *found)
    with MonitorSegment(ask.run_dir) as segment:
        command = issue(
            ask.run_dir, segment, kind=ask.kind, args=ask.args, launch=ask.launch.launch, expect=ask.expect, by=ask.by,
            why=ask.why, ttl_s=ask.until - time.time(),
        )  # fmt: skip
    return command.id


def _server(run_dir: Path, root: Path | None) -> tuple[Endpoint, str] | None:
    """The living server that knows this run, and the run's path below its root."""
    resolved = run_dir.resolve()
    for folder in [*([root.resolve()] if root is not None else []), *resolved.parents]:
        endpoint = read_endpoint(folder)
        if endpoint is not None and is_alive(endpoint):
            return endpoint, resolved.relative_to(folder).as_posix()
    return None


def _post(ask: Ask, endpoint: Endpoint, path: str) -> str:
    body = {"run": path, "kind": ask.kind, "args": plain(ask.args), "expect": ask.expect, "why": ask.why, "by": ask.by}
    headers = {"content-type": "application/json", "x-regimescope-token": endpoint.token}
    control_token = os.environ.get("REGIMESCOPE_CONTROL_TOKEN")
    if control_token:
        headers["x-regimescope-control"] = control_token
    request = urllib.request.Request(
        f"{endpoint.address}/api/commands", json.dumps(body).encode(), headers, method="POST"
    )
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({})
    )  # a proxy has no business between us and this server
    try:
        with direct.open(request, timeout=30) as response:
            return str(json.loads(response.read())["id"])
    except urllib.error.HTTPError as error:
        with error:
            raise ControlError(f"the server at {endpoint.address} refused: {_reason(error)}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ControlError(
            f"no answer that makes sense from the server at {endpoint.address}: {error}; is it still running?"
        ) from None


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"


def _arguments(
    kind: str, options: argparse.Namespace, run_dir: Path, launch: Launch
) -> tuple[int | None, dict[str, object]]:
    """The revision that was seen, and what the command says. Raises ControlError, BoundsError."""
    if kind not in ("set_bounds", "rollback"):
        return None, {}
    given = {name: value for option, name in _OPTIONS.items() if (value := getattr(options, option)) is not None}
    if not given and kind == "set_bounds":
        raise ControlError("no bound given: use --pos-min, --pos-max, --neg-min or --neg-max, as absolute weights")
    revision, now = in_force(run_dir, launch)
    wanted = now.with_values(given)
    problems = bounds_problems(wanted, launch.limits, now) if given else []
    if problems:
        raise ControlError("; ".join(problems))
    bounds: dict[str, object] = {**wanted.to_wire()}
    return revision, bounds if kind == "set_bounds" else {"checkpoint": options.to, "bounds": bounds}


def in_force(run_dir: Path, launch: Launch) -> tuple[int, Bounds]:
    """Revision and bounds in force: what was acked, unless this launch began with a higher revision.

    Raises ControlError.
    """
    state = read_control_state(run_dir)
    if state is not None and state.revision >= launch.revision:
        return state.revision, state.bounds
    if launch.bounds is None:
        raise ControlError(f"{run_dir} declares no bounds: it is only observed and accepts none")
    return launch.revision, launch.bounds


def _report(outcome: Outcome | None, ask: Ask) -> int:
    if outcome is None:
        until = time.strftime("%H:%M:%S", time.localtime(ask.until))
        print(f"no answer yet; the command stays until {until}")
        return 0
    if outcome.status != "applied":
        print(f"{outcome.status}: {outcome.message}")
        return 1
    where = "" if outcome.step is None else f" at step {outcome.step}"
    revision = "" if outcome.revision is None else f", revision {outcome.revision}"
    note = f" ({outcome.message})" if outcome.message else ""
    print(f"applied{where}{revision}{note}")
    return 0


def _parser(kind: str) -> argparse.ArgumentParser:
    name = _NAMES.get(kind, kind)
    parser = argparse.ArgumentParser(prog=f"regimescope {name}", description=_HELP[kind])
    parser.add_argument("run", metavar="RUN", help="run folder, or its path below the root")
    if kind == "rollback":
        parser.add_argument("--to", type=int, required=True, metavar="STEP", help="step of one of its checkpoints")
    if kind in ("set_bounds", "rollback"):
        for option, bound in _OPTIONS.items():
            parser.add_argument(
                f"--{option.replace('_', '-')}", type=float, metavar="W", help=f"{bound}, as an absolute weight"
            )
    if kind in ("set_bounds", "rollback"):
        parser.add_argument("--why", required=True, type=_text, help="the reason, kept with the run")
    else:
        parser.add_argument("--why", default="", help="the reason, kept with the run")
    parser.add_argument("--by", default=_user(), help="who asks (default: the user)")
    parser.add_argument("--root", help="root above the runs (default: $REGIMESCOPE_ROOT, else ./runs)")
    parser.add_argument(
        "--wait", type=float, metavar="S", help="seconds to wait for the answer (default: 60, or 3 steps)"
    )
    return parser


_HELP = {
    "set_bounds": "Ask a running trainer for other clip bounds; those that are not given stay as they are.",
    "pause": "Pause a running trainer at its next step boundary.",
    "resume": "Let a paused trainer go on.",
    "checkpoint": "Ask a running trainer for a checkpoint.",
    "stop": "Stop a running trainer at its next step boundary.",
    "rollback": "Let a running trainer go on from one of its checkpoints, under other bounds if some are given.",
}


def _text(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("say in a few words what the change is for")
    return value.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without an entry
        return "unknown"
