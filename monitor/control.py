"""The control channel as the trainer sees it: command files in, acks out, and the state that survives a crash.

At each step boundary: `folder.poll()`, then for each command `folder.refusal(...)`; None = apply it, write
`control_state.json`, then ack. Whoever can write `run_dir/control/` (mode 0700) commands the run. Standard library
only; the monitor's side is `commands.py`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from regimescope.monitor.bounds import Bounds, Limits, SignBounds
from regimescope.monitor.errors import BoundsError, ControlError, WireError
from regimescope.monitor.ids import is_uuid
from regimescope.monitor.wire import WIRE_VERSION, encode, number

KINDS = ("set_bounds", "pause", "resume", "stop", "checkpoint", "rollback")
"What can be asked of a trainer."
GUARD = "guard"
"Issuer of automatic commands; only its moves of the positive pair are limited in rate."
Status = Literal["received", "applied", "rejected", "expired"]
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A change asked of the trainer, as it stands in a segment and in `control/<id>.json`."""

    id: str
    "Version-7 UUID: sorts by time of issue."
    launch: str
    "The launch it is for; every other one lets it expire."
    kind: str
    "One of KINDS."
    args: Mapping[str, object]
    """set_bounds: the four absolute weights, {'pos': [w_min, w_max], 'neg': [w_min, w_max]}; rollback: {'checkpoint':
    step, 'bounds': the same}; else empty."""
    expect: int | None
    "Revision that the issuer saw in force; None = any."
    not_after: float
    "Unix seconds; later it is expired."
    by: str
    "Person, or `guard`."
    why: str
    "Reason, free text."
    alert: str | None = None
    "Alert that it answers."
    t: float = 0.0
    "Unix seconds of issue."

    @classmethod
    def from_wire(cls, wire: object) -> Command:
        """From a command line or file. Raises ControlError, naming the key that is wrong."""
        if not isinstance(wire, Mapping):
            raise ControlError("a command is a JSON object")
        texts = {key: wire.get(key) for key in ("id", "launch", "kind", "by", "why")}
        for key, value in texts.items():
            if not isinstance(value, str):
                raise ControlError(f"command without a text {key!r}")
        if not is_uuid(cast(str, texts["id"])):
            raise ControlError(f"command id {texts['id']!r} is no UUID")
        args, expect, alert = wire.get("args") or {}, wire.get("expect"), wire.get("alert")
        if not isinstance(args, Mapping):
            raise ControlError("command `args` is no object")
        if expect is not None and (not isinstance(expect, int) or isinstance(expect, bool)):
            raise ControlError(f"command `expect` {expect!r} is no revision")
        if alert is not None and not isinstance(alert, str):
            raise ControlError("command `alert` is no text")
        try:
            not_after, t = number(wire.get("not_after")), number(wire.get("t", 0.0))
        except WireError as error:
            raise ControlError(f"command `not_after` or `t`: {error}") from None
        return cls(**cast(dict[str, str], texts), args=args, expect=expect, not_after=not_after, alert=alert, t=t)

    def to_wire(self) -> dict[str, object]:
        """The line without its `q`."""
        fields = ("t", "id", "launch", "by", "kind", "args", "expect", "not_after", "alert", "why")
        return {"v": WIRE_VERSION, "k": "command", **{name: getattr(self, name) for name in fields}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The trainer's answer to a command."""

    id: str
    "Id of the command."
    step: int | None
    "Applied: the first step under it. None = no step yet."
    status: Status
    revision: int | None = None
    "Revision in force after this answer."
    applied: Bounds | None = None
    "Effective bounds, of an applied set_bounds or rollback."
    message: str = ""
    "Why it was rejected or expired."

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Ack:
        """From an ack line. Raises ControlError."""
        status, step, revision, applied = wire.get("status"), wire.get("s"), wire.get("rev"), wire.get("applied")
        if status not in get_args(Status) or not isinstance(wire.get("id"), str):
            raise ControlError(f"ack line without id or with status {status!r}")
        try:
            bounds = Bounds.from_wire(applied) if isinstance(applied, Mapping) else None
        except BoundsError as error:
            raise ControlError(f"ack line: {error}") from None
        return cls(
            id=str(wire["id"]),
            step=step if isinstance(step, int) else None,
            status=cast(Status, status),
            revision=revision if isinstance(revision, int) else None,
            applied=bounds,
            message=str(wire.get("msg", "")),
        )

    def to_wire(self) -> dict[str, object]:
        """Kind and fields of the line; the Recorder adds version, sequence number and time."""
        line: dict[str, object] = {"k": "ack", "id": self.id}
        if self.step is not None:
            line["s"] = self.step
        line["status"] = self.status
        if self.revision is not None:
            line["rev"] = self.revision
        if self.applied is not None:
            line["applied"] = self.applied.to_wire()
        return {**line, "msg": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """What the trainer last acked, kept in `run_dir/control_state.json`.

    A resume takes it when its revision is the higher one.
    """

    revision: int
    "Number of the bounds."
    bounds: Bounds
    "In force."
    step: int
    "First step under these bounds."


def rollback_of(args: Mapping[str, object]) -> tuple[int, Bounds]:
    """Step of the checkpoint to go back to, and the bounds from there on. Raises ControlError, BoundsError."""
    step, bounds = args.get("checkpoint"), args.get("bounds")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ControlError(f"rollback: `checkpoint` is {step!r}; want the step of one of the run's own checkpoints")
    if not isinstance(bounds, Mapping):
        raise ControlError("rollback without `bounds`: give all four, they are in force from the checkpoint on")
    return step, Bounds.from_wire(bounds)


def read_control_state(run_dir: str | os.PathLike[str]) -> ControlState | None:
    """The last acked state, None where nothing was acked. Raises ControlError for a broken file."""
    path = Path(run_dir, "control_state.json")
    try:
        wire = json.loads(path.read_bytes())
        return ControlState(
            revision=int(wire["revision"]), bounds=Bounds.from_wire(wire["bounds"]), step=int(wire["step"])
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ControlError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ControlError(
            f"{path} is broken ({error!r}): delete it to resume under the bounds of the checkpoint, or restore it"
        ) from None


def write_control_state(run_dir: str | os.PathLike[str], state: ControlState) -> None:
    """Replace the acked state, durably, before the ack goes out. Raises ControlError."""
    path = Path(run_dir, "control_state.json")
    wire = {"v": WIRE_VERSION, "revision": state.revision, "bounds": state.bounds.to_wire(), "step": state.step}
    try:
        replace_file(path, encode(wire), durable=True)
    except OSError as error:
        raise ControlError(f"cannot write {path}: {error.strerror}") from None


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write `path` so that a reader sees the old or the new content, never a part: a temporary file, then a rename.

    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class ControlFolder:
    """The trainer's end of `run_dir/control/`: finds commands, checks them.

    Applying and acking are the trainer's business.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str], *, launch: str, can: Sequence[str], limits: Limits | None = None
    ) -> None:
        """Creates the folder with mode 0700. `can`: kinds that this trainer obeys; `limits`: needed for set_bounds.

        Raises ControlError.
        """
        self.path = Path(run_dir, "control")
        self.broken: list[Ack] = []
        "Rejections of the files that the last poll could not read; ack them, each comes once."
        self._launch, self._can, self._limits = launch, tuple(can), limits
        self._seen: set[str] = set()
        self._guard_step: int | None = None
        if "set_bounds" in can and limits is None:
            raise ControlError("a trainer that accepts set_bounds must declare limits")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(self.path, 0o700)  # the mode of mkdir is cut by the umask, an existing folder may have another
        except OSError as error:
            raise ControlError(f"cannot create {self.path}: {error.strerror}; make the run folder writable") from None

    def relaunch(self, launch: str) -> None:
        """From now on this is the end of another launch of the same process; what was seen stays seen."""
        self._launch = launch

    def poll(self) -> list[Command]:
        """Commands that were not seen before, in the order of their ids.

        Never raises; unreadable files go to `broken`.
        """
        self.broken = []
        try:
            names = os.listdir(self.path)
        except OSError:  # deleted or a file system that is away: no commands now
            return []
        found = []
        for name in sorted(
            name for name in names if name.endswith(".json") and not name.startswith(".") and name not in self._seen
        ):
            try:
                data = _read_regular(self.path / name)
            except FileNotFoundError:  # withdrawn by the monitor between the two calls
                continue
            except OSError as error:
                self._reject(name, f"cannot read the command file: {error.strerror}")
                continue
            self._seen.add(name)
            try:
                command = Command.from_wire(json.loads(data))
            except (ValueError, RecursionError, ControlError) as error:
                self._reject(name, f"broken command file: {error}")
                continue
            if f"{command.id}.json" != name:
                self._reject(name, f"file name and command id {command.id} differ: a copied file is no command")
                continue
            found.append(command)
        return found

    def _reject(self, name: str, message: str) -> None:
        self._seen.add(name)
        self.broken.append(Ack(id=name.removesuffix(".json"), step=None, status="rejected", message=message))

    def refusal(
        self, command: Command, *, revision: int, bounds: Bounds, now: float, step: int | None = None
    ) -> tuple[Literal["rejected", "expired"], str] | None:
        """Why this command is not obeyed, or None. Values are never clamped: what was confirmed happens, or nothing.

        `revision`, `bounds`: in force. `now`: unix seconds. `step`: the step it would apply to, needed for moves of the
        positive pair by `guard`; one that is allowed counts as made.
        """
        if command.launch != self._launch:
            return "expired", f"the command is for launch {command.launch}, this is {self._launch}"
        if now > command.not_after:
            return "expired", f"the command came {now - command.not_after:.0f} s after its end"
        if command.kind not in self._can:
            return (
                "rejected",
                f"this trainer does not accept {command.kind!r}; it accepts: {', '.join(self._can) or 'nothing'}",
            )
        if command.expect is not None and command.expect != revision:
            return (
                "rejected",
                f"revision {revision} is in force, the command expected {command.expect}: look at the bounds again",
            )
        if command.kind not in ("set_bounds", "rollback"):
            return None
        message = self._bounds_refusal(command, bounds, step)
        return None if message is None else ("rejected", message)

    def _bounds_refusal(self, command: Command, bounds: Bounds, step: int | None) -> str | None:
        back = command.kind == "rollback"
        try:
            wanted = rollback_of(command.args)[1] if back else Bounds.from_wire(command.args)
        except (BoundsError, ControlError) as error:
            return str(error)
        if back and wanted == bounds:  # nothing moves: also of a run that declares no limits
            return None
        problems = bounds_problems(wanted, self._limits, bounds)
        if problems:
            return "; ".join(problems)
        if command.by == GUARD and wanted.pos != bounds.pos:
            return self._guard_refusal(wanted.pos, bounds.pos, step)
        return None

    def _guard_refusal(self, wanted: SignBounds, now: SignBounds, step: int | None) -> str | None:
        assert self._limits is not None  # else bounds_problems had refused
        factor, least = self._limits.max_factor, self._limits.min_steps
        for name, old, new in (("pos.w_min", now.w_min, wanted.w_min), ("pos.w_max", now.w_max, wanted.w_max)):
            if not old / factor <= new <= old * factor:
                return f"guard may change {name} = {old:g} by a factor of {factor:g} at most, not to {new:g}"
        if step is None or (self._guard_step is not None and step - self._guard_step < least):
            return f"guard must leave {least} steps between two changes of the positive pair"
        self._guard_step = step
        return None


def bounds_problems(wanted: Bounds, limits: Limits | None, now: Bounds | None) -> list[str]:
    """What is wrong with asking for these bounds, a sentence each.

    `now`: in force, for a sign that has no bounds to move.
    """
    if limits is None:
        return ["this run declares no limits: it is only observed and accepts no bounds"]
    found = limits.problems(wanted)
    for sign in ("pos", "neg"):
        if getattr(limits, sign) is None and now is not None and getattr(wanted, sign) != getattr(now, sign):
            found.append(f"{sign}: the weight of this sign is constant, it has no bounds to move")
    return found


def _read_regular(path: Path) -> bytes:
    """Content of a small regular file; a link, a pipe or a folder of that name is an OSError and never blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise OSError(0, f"not a regular file of at most {_MAX_BYTES} bytes")
        return os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
