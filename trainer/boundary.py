"""The control boundary: between two steps the trainer looks for commands, checks them against its own limits, applies
them and acks.

`control_state.json` is written before a change of bounds is applied and acked, so acked bounds survive a crash. While
paused the folder is polled every 0.5 s and the recorder's heartbeat says `paused`. The bounds in force live here.

With several ranks rank 0 alone polls, decides and writes; the others get its decision in the same exchange that tells
all whether one of them was interrupted. So every rank applies, refuses, pauses and ends at the same boundary, and each
writes its own ack.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regimescope.monitor.bounds import Bounds
from regimescope.monitor.control import Ack, Command, ControlFolder, ControlState, write_control_state
from regimescope.monitor.errors import ControlError
from regimescope.monitor.record import Recorder
from regimescope.trainer.errors import CheckpointError
from regimescope.trainer.ranks import Ranks

CAN = ("set_bounds", "pause", "resume", "stop", "checkpoint")
"Kinds of commands that the trainer obeys."
PAUSE_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What rank 0 found and decided at a boundary: the state after it, and the answers."""

    acks: tuple[Ack, ...]
    bounds: Bounds
    revision: int
    paused: bool
    stopped: bool


class ControlBoundary:
    """Visited once before every step. `bounds` and `revision` are those in force."""

    def __init__(
        self,
        folder: ControlFolder,
        recorder: Recorder,
        *,
        bounds: Bounds,
        revision: int,
        interrupted: threading.Event,
        checkpoint: Callable[[], Path | None],
        ranks: Ranks | None = None,
    ) -> None:
        """`interrupted`: set by a signal, ends a pause. `checkpoint`: saves the last finished step for good; None =
        there is none yet. `ranks`: None = this process alone."""
        self.bounds = bounds
        self.revision = revision
        self._folder = folder
        self._recorder = recorder
        self._interrupted = interrupted
        self._checkpoint = checkpoint
        self._ranks = ranks or Ranks()
        self._paused = False
        self._stopped = False
        self._ended = False  # one of the ranks was interrupted

    def visit(self, step: int) -> bool:
        """Handle what was asked; False = stop before `step`. Returns only when the run is not paused."""
        self._poll(step)
        if self._paused and self._goes_on():
            self._recorder.state("paused", step=step)
            while self._paused and self._goes_on():
                if self._ranks.rank == 0:  # the others wait for it
                    self._interrupted.wait(PAUSE_POLL_S)
                self._poll(step)
            self._recorder.state("running", step=step)
        return self._goes_on()

    def _goes_on(self) -> bool:
        return not self._stopped and not self._ended

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

    def _decide(self, step: int) -> Decision:
        """Obey what was asked, or refuse it; each answer is recorded at once, the next command may take long."""
        commands, acks = self._folder.poll(), list[Ack]()
        for answer in chain(self._folder.broken, (self._answer(command, step) for command in commands)):
            self._recorder.ack(answer)
            acks.append(answer)
        return Decision(
            acks=tuple(acks),
            bounds=self.bounds,
            revision=self.revision,
            paused=self._paused,
            stopped=self._stopped,
        )

    def _answer(self, command: Command, step: int) -> Ack:
        """Obey one command, or say why not."""
        refusal = self._folder.refusal(command, revision=self.revision, bounds=self.bounds, now=time.time(), step=step)
        if refusal is not None:
            status, message = refusal
            return Ack(id=command.id, step=step, status=status, revision=self.revision, message=message)
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
