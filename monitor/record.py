"""The Recorder: what a training process holds to write its numbers into a segment of the run folder.

A call puts the record into a bounded queue that a daemon thread empties (`sync=True` writes in the call). It raises
only when it cannot start. After that nothing raises and nothing blocks: what cannot be kept is counted in `dropped` and
announced by a `dropped` event. Non-finite numbers are stored. In a forked child it is off. docs/embedding.md shows its
use. Standard library only, but for rollouts, which need pyarrow.
"""

from __future__ import annotations

import atexit
import functools
import logging
import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec

from regimescope.monitor.bounds import Bounds, Limits, WeightRule
from regimescope.monitor.control import Ack
from regimescope.monitor.edges import LR1
from regimescope.monitor.errors import RecorderError
from regimescope.monitor.header_writer import Header
from regimescope.monitor.rivals import rivals
from regimescope.monitor.rollout_writer import WAITING, RolloutWriter
from regimescope.monitor.rollouts import Rollout, RolloutOptions
from regimescope.monitor.token_stats import RatioHist, TokenStats
from regimescope.monitor.wire import plain
from regimescope.monitor.writer import Writer

log = logging.getLogger(__name__)

Metrics = Mapping[str, float | tuple[float, float]]
"Metric -> number, or (mean, weight) where items stand behind a mean: then ranks add exactly."
Slice = tuple[str, str]
"Kind and value, ('env', 'math')."
State = Literal["running", "waiting_rollouts", "paused", "evaluating", "checkpointing"]
Reason = Literal["finished", "stopped", "rollback", "error"]
P = ParamSpec("P")


def _never_raise(method: Callable[Concatenate[Recorder, P], None]) -> Callable[Concatenate[Recorder, P], None]:
    """The promise to the training loop: whatever goes wrong in here is one dropped record, counted."""

    @functools.wraps(method)
    def call(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._writer.off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._writer.lose(1, f"{method.__name__}: {type(error).__name__}: {error}")

    return call


class Recorder:
    """Writes one rank's segment of one launch. Use it as a context manager, or call `end` at the end.

    >>> import tempfile
    >>> with Recorder(tempfile.mkdtemp()) as recorder:
    ...     recorder.step(0, {"reward_mean": (0.42, 16), "kl_ref": float("nan")})
    >>> recorder.dropped
    0
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        name: str | None = None,
        objective: str | None = None,
        framework: str | None = None,
        ratio_source: Literal["behaviour", "proximal", "infer"] = "behaviour",
        eq_tol: float = 0.0,
        rule: WeightRule | None = None,
        limits: Limits | None = None,
        revision: int = 0,
        launch: str | None = None,
        start: Literal["fresh", "resume", "rollback"] = "fresh",
        first_step: int = 0,
        rank: int = 0,
        ranks: int = 1,
        effect: tuple[int, int] | None = None,
        can: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        rollouts: RolloutOptions | None = None,
        sync: bool = False,
        queue_size: int = 10_000,
    ) -> None:
        """Creates the run folder and the segment. Raises RecorderError.

        run_dir: folder of the run. name: shown to people. rule: how weights are made, with the bounds at the start.
        limits: range of bounds that a command may set; only of a run that accepts set_bounds. revision: number of the
        bounds at the start. launch: id of this start of the job, the same on all ranks; with ranks > 1 and none given,
        job id and restart count of Slurm or torchrun. first_step: first step of this launch; older launches are
        superseded from it on. effect: (every, seed) of the entropy effect's sampling. can: commands and other
        capabilities. edges: named bin edges for `hist`. rollouts: how many responses are kept as Parquet files (needs
        pyarrow); None = none. sync: write in the call, so that a killed process loses nothing. queue_size: records that
        may wait.
        """
        if queue_size < 1:
            raise RecorderError(f"queue_size={queue_size}: at least 1 record must be able to wait")
        if not isinstance(rollouts, RolloutOptions | None):
            raise RecorderError(f"rollouts={rollouts!r}: want RolloutOptions(...), or None to keep none")
        header = Header(
            run_dir=Path(run_dir), name=name, objective=objective, framework=framework, ratio_source=ratio_source,
            eq_tol=eq_tol, rule=rule, limits=limits, revision=revision, launch=launch, start=start, rank=rank,
            first_step=first_step, ranks=ranks, effect=effect, config=config, edges=edges,
            can=(*can, "rollouts") if rollouts is not None and "rollouts" not in can else tuple(can),
        )  # fmt: skip
        self.run_dir = header.run_dir
        "Folder of the run."
        self.launch = header.launch_id
        "Id of this launch."
        self._rollouts = None
        if rollouts is not None:
            self._rollouts = RolloutWriter(header.run_dir, rollouts, rank=rank, ranks=ranks)
        self._appender = header.create()
        if self._rollouts is not None:
            self._rollouts.start_ns = self._appender.name.start_ns
        self._writer = Writer(self._appender, sync=sync, queue_size=queue_size, name=f"regimescope-recorder-{rank}")
        atexit.register(self.close)
        for other in rivals(header.run_dir, rank):
            log.warning("%s: another process records as rank %d, into %s: pass rank= and ranks=", run_dir, rank, other)
            self.event("second_writer", {"rank": rank, "file": self.path.name, "other": other})

    @property
    def path(self) -> Path:
        """The segment file, its current part."""
        return self._appender.path

    @property
    def dropped(self) -> int:
        """Records that were handed over and are not in the segment."""
        return self._writer.dropped

    # -- what the training loop calls --

    @_never_raise
    def scalars(self, step: int, metrics: Metrics, *, update: int | None = None, slice: Slice | None = None) -> None:
        """Numbers of one gradient update, of a slice, or late ones of a step."""
        self._writer.put({**_where("scalars", step, update, slice), "m": dict(metrics)})

    @_never_raise
    def step(self, step: int, metrics: Metrics, *, slice: Slice | None = None) -> None:
        """The LAST line of a step: this rank is through with it.

        With `slice` it is a `scalars` line of that slice, which ends nothing.
        """
        self._writer.put({**_where("step" if slice is None else "scalars", step, None, slice), "m": dict(metrics)})

    @_never_raise
    def buckets(
        self, step: int, update: int, stats: TokenStats, *, revision: int, bounds: Bounds, slice: Slice | None = None
    ) -> None:
        """The seven buckets of one gradient update, with the bounds that were in force for it and their revision."""
        head = _where("buckets", step, update, slice)
        self._writer.put({**head, "rev": revision, "bounds": bounds.to_wire(), **stats.bucket_columns()})

    @_never_raise
    def ratio_hist(
        self, step: int, stats: TokenStats, *, update: int | None = None, slice: Slice | None = None
    ) -> None:
        """The log-ratio histograms of `stats` over the edges `lr1`; nothing where they were not measured."""
        if stats.hist_pos is None or stats.hist_neg is None:
            return
        sides = {"pos": _sparse(stats.hist_pos), "neg": _sparse(stats.hist_neg)}
        self._writer.put({**_where("ratio_hist", step, update, slice), "edges": "lr1", **sides})

    @_never_raise
    def hist(self, step: int, name: str, counts: Sequence[int], edges: str, *, slice: Slice | None = None) -> None:
        """Any other histogram: counts per bin over a named edge set, one more than there are edges."""
        filled = [i for i, n in enumerate(counts) if n]
        sparse = {"i": filled, "n": [counts[i] for i in filled]}
        self._writer.put({**_where("hist", step, None, slice), "name": name, "edges": edges, **sparse})

    def wants_rollouts(self, step: int) -> bool:
        """Whether `rollouts` would keep rows of this step: where not, there is no need to gather them."""
        kept = self._rollouts
        try:
            return kept is not None and not self._writer.off and kept.wants(step)
        except Exception:  # a step that is no number: `rollouts` counts it
            return False

    @_never_raise
    def rollouts(self, step: int, rows: Iterable[Rollout], update: int | None = None) -> None:
        """Responses of a step, all in one call; some of them are kept (`RolloutOptions`), where the step is wanted.

        Choosing and writing are the thread's. The rows of two steps may wait, further ones are dropped and counted.
        update: the gradient update of the rows that name none.
        """
        kept, head = self._rollouts, _where("rollouts", step, update, None)
        if kept is None or not kept.wants(step):
            return
        given = tuple(rows)
        if not kept.reserve():
            raise BlockingIOError(f"{WAITING} steps of them are still being written")
        self._writer.put(head, always=True, job=functools.partial(kept.write, step, update, given))

    @_never_raise
    def event(self, kind: str, data: Mapping[str, object] | None = None, *, step: int | None = None) -> None:
        """Anything dated: `checkpoint`, `sync`, `curriculum`, `length_limit`, `sampling`, `dead_step`."""
        self._writer.put({**_where("event", step, None, None), "kind": kind, "data": plain(data or {})})

    @_never_raise
    def state(self, state: State, *, step: int | None = None) -> None:
        """What the trainer is doing now. The recorder repeats it every 5 s while it is not `running`."""
        record = {**_where("event", step, None, None), "kind": "state", "data": {"state": state}}
        self._writer.repeat(None if state == "running" else record)
        self._writer.put(record)

    @_never_raise
    def ack(self, answer: Ack) -> None:
        """The answer to a command; write `control_state.json` before an `applied` one."""
        self._writer.put(answer.to_wire(), always=True)

    @_never_raise
    def end(self, reason: Reason) -> None:
        """The clean end of this launch, then `close`. A second call does nothing."""
        self._writer.repeat(None)
        self._writer.put({"k": "end", "reason": reason}, always=True)
        self.close()

    @_never_raise
    def close(self) -> None:
        """Write what is queued, for 5 s at most, and give the file back.

        Without `end` before it the launch counts as broken off.
        """
        atexit.unregister(self.close)
        self._writer.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.end("finished" if kind is None else "stopped" if interrupted else "error")


def _where(kind: str, step: int | None, update: int | None, slice: Slice | None) -> dict[str, object]:
    head: dict[str, object] = {"k": kind, "t": time.time()}
    if step is not None:
        head["s"] = operator.index(step)
    if update is not None:
        head["u"] = operator.index(update)
    if slice is not None:
        head["sl"] = {slice[0]: slice[1]}
    return head


def _sparse(hist: RatioHist) -> dict[str, object]:
    """Filled bins as columns, sums rounded to 7 digits."""
    if len(hist.counts) != len(LR1) + 1:
        raise ValueError(f"{len(hist.counts)} bins, where the edges lr1 make {len(LR1) + 1}")
    filled = [i for i, n in enumerate(hist.counts) if n]
    columns = {"r": hist.ratio_sum, "a": hist.abs_adv_sum, "ra": hist.abs_adv_ratio_sum}
    sums = {key: [float(f"{values[i]:.7g}") for i in filled] for key, values in columns.items()}
    return {"i": filled, "n": [hist.counts[i] for i in filled], **sums}
