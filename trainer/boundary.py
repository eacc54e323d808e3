"""The control boundary: between two steps the trainer looks for commands, checks them against its own limits, applies
them and acks.

`control_state.json` is written before a change of bounds is applied and acked, so acked bounds survive a crash. While
paused the folder is polled every 0.5 s and the recorder's heartbeat says `paused`. The bounds in force live here.

With several ranks rank 0 alone polls, decides and writes; the others get its decision in the same exchange that tells
all whether one of them was interrupted. So every rank applies, refuses, pauses and ends at the same boundary, and each
writes its own ack.

A rollback ends the launch: `visit` is False and `back` says where the next one begins, which acks it. Every rank has
loaded that checkpoint before rank 0 writes anything, so one that cannot be read is refused and the run goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import Ack, Command, ControlFolder, ControlState, rollback_of, write_control_state
from regimescope.monitor.errors import ControlError
from regimescope.monitor.record import Recorder
from regimescope.trainer.errors import CheckpointError, PolicyError, RanksError
from regimescope.trainer.policy import Policy
from regimescope.trainer.ranks import Ranks
from regimescope.trainer.resume import StartPoint

CAN = ("set_bounds", "pause", "resume", "stop", "checkpoint", "rollback")
"Kinds of commands that the trainer obeys."
PAUSE_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A rollback that rank 0 has found nothing against."""

    command: str
    "Id."
    checkpoint: int
    "Its step."
    bounds: Bounds
    "From there on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """A rollback that is written down: the launch after this one."""

    command: str
    "Id, which the next launch acks."
    point: StartPoint
    policy: Policy
    paused: bool
    "The run stays paused."
    later: tuple[Command, ...]
    "What came after it in the same look, on rank 0: for the next launch to answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What rank 0 found and decided at a boundary: the state after it, and the answers."""

    acks: tuple[Ack, ...]
    bounds: Bounds
    revision: int
    paused: bool
    stopped: bool
    wanted: Wanted | None = None


class ControlBoundary:
    """Visited once before every step, for one launch. `bounds` and `revision` are those in force."""

    def __init__(
        self,
        folder: ControlFolder,
        recorder: Recorder,
        *,
        bounds: Bounds,
        revision: int,
        interrupted: threading.Event,
        checkpoint: Callable[[], Path | None],
        rollback: Callable[[Wanted, ControlState], tuple[StartPoint, Policy]],
        ranks: Ranks | None = None,
        after: Back | None = None,
    ) -> None:
        """`interrupted`: set by a signal, ends a pause. `checkpoint`: saves the last finished step for good; None =
        there is none yet. `rollback`: loads a checkpoint on every rank and writes down that the run goes on from it;
        is given what is in force. `ranks`: None = this process alone. `after`: the rollback that made this launch."""
        self.bounds = bounds
        self.revision = revision
        self._folder = folder
        self._recorder = recorder
        self._interrupted = interrupted
        self._checkpoint = checkpoint
        self._rollback = rollback
        self._ranks = ranks or Ranks()
        self.back: Back | None = None
        "The run goes on from an older checkpoint, in a launch of its own."
        self._later = [] if after is None else list(after.later)
        self._paused = after is not None and after.paused
        self._stopped = False
        self._ended = False  # one of the ranks was interrupted

    def visit(self, step: int) -> bool:
        """Handle what was asked; False = this launch ends before `step`. Returns only when the run is not paused."""
        self._poll(step)
        if self._paused and self._goes_on():
            self._recorder.state("paused", step=step)
            while self._paused and self._goes_on():
                if self._ranks.rank == 0:  # the others wait for it
                    self._interrupted.wait(PAUSE_POLL_S)
                self._poll(step)
            if self.back is None:
                self._recorder.state("running", step=step)
        return self._goes_on()

    def _goes_on(self) -> bool:
        return not self._stopped and not self._ended and self.back is None

    def _poll(self, step: int) -> None:
        decision = self._decide(step) if self._ranks.rank == 0 else None
        said = self._ranks.gather((decision, self._interrupted.is_set()))
        decision, self._ended = said[0][0], any(interrupted for _, interrupted in said)
        assert decision is not None  # of rank 0
        self.bounds, self.revision = decision.bounds, decision.revision
        self._paused, self._stopped = decision.paused, decision.stopped
        if self._ranks.rank > 0:
            for ack in decision.acks:
                self._recorder.ack(ack)
        if decision.wanted is not None:
            self._go_back(decision.wanted, step)

    def _go_back(self, wanted: Wanted, step: int) -> None:
        """On every rank: the next launch is ready, or all say why not and the run goes on as it was."""
        before = ControlState(revision=self.revision, bounds=self.bounds, step=step)
        try:
            point, policy = self._rollback(wanted, before)
        except (ControlError, CheckpointError, PolicyError, RanksError) as error:
            refused = Ack(id=wanted.command, step=step, status="rejected", revision=self.revision, message=str(error))
            self._recorder.ack(refused)
            return
        self.back = Back(
            command=wanted.command, point=point, policy=policy, paused=self._paused, later=tuple(self._later)
        )

    def _decide(self, step: int) -> Decision:
        """Obey what was asked, or refuse it; each answer is recorded at once, the next command may take long."""
        found, acks, wanted = [*self._later, *self._folder.poll()], list[Ack](), None
        self._later = []
        for answer in self._folder.broken:
            self._recorder.ack(answer)
            acks.append(answer)
        for i, command in enumerate(found):
            done = self._answer(command, step)
            if isinstance(done, Wanted):  # the rest is for the launch that it makes, or for this one if it fails
                wanted, self._later = done, found[i + 1 :]
                break
            self._recorder.ack(done)
            acks.append(done)
        return Decision(
            acks=tuple(acks),
            bounds=self.bounds,
            revision=self.revision,
            paused=self._paused,
            stopped=self._stopped,
            wanted=wanted,
        )

    def _answer(self, command: Command, step: int) -> Ack | Wanted:
        """Obey one command, or say why not; a rollback is for all ranks to try."""
        refusal = self._folder.refusal(command, revision=self.revision, bounds=self.bounds, now=time.time(), step=step)
        if refusal is not None:
            status, message = refusal
            return Ack(id=command.id, step=step, status=status, revision=self.revision, message=message)
        if command.kind == "rollback":
            if self._stopped:
                message = "the run is stopping: go on with --resume --checkpoint"
                return Ack(id=command.id, step=step, status="rejected", revision=self.revision, message=message)
            checkpoint, bounds = rollback_of(command.args)
            return Wanted(command=command.id, checkpoint=checkpoint, bounds=bounds)
        try:
            applied, message = self._obey(command, step)
        except (ControlError, CheckpointError) as error:  # disk full, read-only folder: the run goes on as it was
            return Ack(id=command.id, step=step, status="rejected", revision=self.revision, message=str(error))
        return Ack(id=command.id, step=step, status="applied", revision=self.revision, applied=applied, message=message)

    def _obey(self, command: Command, step: int) -> tuple[Bounds | None, str]:
        match command.kind:
            case "set_bounds":
                return self._set_bounds(Bounds.from_wire(command.args), step), ""
            case "pause":
                self._paused = True
            case "resume":
                was, self._paused = self._paused, False
                return None, "" if was else "was not paused"
            case "stop":
                self._stopped = True
            case "checkpoint":
                folder = self._checkpoint()
                if folder is None:
                    raise CheckpointError("no step is finished yet, so there is nothing to save")
                return None, f"saved {folder.name}"
        return None, ""

    def _set_bounds(self, bounds: Bounds, step: int) -> Bounds:
        revision = self.revision + 1
        write_control_state(self._folder.path.parent, ControlState(revision=revision, bounds=bounds, step=step))
        self.bounds, self.revision = bounds, revision
        return bounds
