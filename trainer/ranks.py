"""The ranks of a run: the processes that `torchrun` started, and all that they say to each other (gloo, CPU).

    with Ranks.open() as ranks:                 # without torchrun: one rank, at no cost
        folder = ranks.agreed(choose_a_folder)  # rank 0 does it, all have the outcome
        own = ranks.share(len(problems))        # a range of them
        everything = ranks.gather(answers)      # one entry per rank

Every rank must make the same calls in the same order. Each is given up with RanksError when another rank is gone, or
silent for TIMEOUT_S.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from types import TracebackType
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from regimescope.monitor.errors import RegimescopeError
from regimescope.trainer.errors import RanksError, RankZeroError

T = TypeVar("T")

TIMEOUT_S = 600.0
"Longest wait for another rank. It must be longer than a checkpoint of rank 0 and than the slowest share of a step."
LOST = "rank {rank} lost the others ({reason}): see why one of them ended, then go on with --resume"
JOINING = "rank {rank} cannot reach the others ({reason}): see what torchrun says; GLOO_SOCKET_IFNAME names the network"


class Ranks:
    """This process among those of the run. `Ranks()` is alone, and every method returns at once."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        "From 0 on; rank 0 alone talks, polls commands and writes checkpoints."
        self.size = size

    @classmethod
    def open(cls, *, timeout_s: float = TIMEOUT_S) -> Ranks:
        """The rank that torchrun gave this process; waits for the others. Raises RanksError."""
        size = launched_size()
        if size == 1:
            return cls()
        with _together(launched_rank(), JOINING):
            dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
        return cls(launched_rank(), size)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size > 1:
            dist.destroy_process_group()

    # ------------------------------------------------------------------------------------------------- who does what
    def share(self, count: int, *, size: int | None = None) -> range:
        """Which of `count` things are this rank's: contiguous, in the order of the ranks, maybe none.

        `size`: things per rank, the last ranks have what is left; None = as equal as it gets.

        >>> [list(Ranks(rank, 2).share(5)) for rank in (0, 1)], list(Ranks(1, 2).share(5, size=4))
        ([[0, 1], [2, 3, 4]], [4])
        """
        if size is None:
            return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)
        return range(min(count, size * self.rank), min(count, size * (self.rank + 1)))

    def agreed(self, action: Callable[[], T]) -> T:
        """What `action` gives on rank 0, the only one to run it. A RegimescopeError of it is raised on every rank, as
        RankZeroError on the others."""
        if self.size == 1:
            return action()
        said: list[tuple[T | None, str | None] | None] = [None]
        failure: RegimescopeError | None = None
        if self.rank == 0:
            try:
                said[0] = (action(), None)
            except RegimescopeError as error:
                failure, said[0] = error, (None, str(error))
        with _together(self.rank):
            dist.broadcast_object_list(said, src=0)
        if failure is not None:
            raise failure
        assert said[0] is not None  # rank 0 said it
        value, message = said[0]
        if message is not None:
            raise RankZeroError(message)
        return cast(T, value)

    def together(self, action: Callable[[], T]) -> T:
        """What `action` gives here, once no rank failed at it. A RegimescopeError of one is an error of all: told by
        rank 0 where it has it too, else by those that have it."""
        if self.size == 1:
            return action()
        value: T | None = None
        failure: RegimescopeError | None = None
        try:
            value = action()
        except RegimescopeError as error:
            failure = error
        told = self.gather(None if failure is None else str(failure))
        if failure is not None and (self.rank == 0 or told[0] is None):
            raise failure
        if any(told):
            place = next(rank for rank, message in enumerate(told) if message)
            raise RankZeroError(told[0]) if place == 0 else RanksError(f"rank {place} failed: {told[place]}")
        return cast(T, value)

    # -------------------------------------------------------------------------------------------------- what all know
    def gather(self, value: T) -> list[T]:
        """The `value` of every rank. It is pickled: no tensor that is a view of a larger one."""
        if self.size == 1:
            return [value]
        found: list[T | None] = [None] * self.size
        with _together(self.rank):
            dist.all_gather_object(found, value)
        return cast(list[T], found)

    def sum_gradients(self, parameters: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Add the gradients of all ranks, in place and bit for bit the same everywhere; returns the sum of `loss`.

        One float32 buffer in one call. A parameter without gradient adds 0.
        """
        if self.size == 1:
            return loss
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(grad.flatten() for grad in grads), loss.reshape(1)])
        with _together(self.rank):
            dist.all_reduce(flat)
        pieces = torch.split(flat[:-1], [grad.numel() for grad in grads])
        for parameter, grad, piece in zip(parameters, grads, pieces, strict=True):
            parameter.grad = grad.copy_(piece.view_as(grad))
        return flat[-1]


def weights_checksum(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    """A sum per parameter over the bits of its float32 numbers: cheap, the same for the same weights."""
    return tuple(int(p.detach().view(torch.int32).sum()) for p in parameters)


def launched_size() -> int:
    """Ranks that torchrun started; 1 without it, whatever other launchers left in the environment."""
    return int(os.environ.get("WORLD_SIZE", "1")) if dist.is_available() and dist.is_torchelastic_launched() else 1


def launched_rank() -> int:
    return int(os.environ["RANK"]) if launched_size() > 1 else 0


@contextmanager
def only_rank_0_talks() -> Iterator[None]:
    """On every other rank what is printed meanwhile goes nowhere; exceptions pass."""
    with ExitStack() as stack:
        if launched_rank():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


@contextmanager
def _together(rank: int, trouble: str = LOST) -> Iterator[None]:
    """torch and gloo raise RuntimeErrors of several kinds when a rank is gone or late."""
    try:
        yield
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RanksError(trouble.format(rank=rank, reason=reason[:200])) from None
