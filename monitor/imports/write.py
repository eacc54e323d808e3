"""A foreign log becomes a run folder: `write_run(folder, log, mapper)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from regimescope.monitor.errors import ImportFailed
from regimescope.monitor.framework_windows import Effective
from regimescope.monitor.header_writer import RatioSource
from regimescope.monitor.imports.dump_join import Dump
from regimescope.monitor.imports.mapping import Mapper
from regimescope.monitor.imports.rows import Notes, Rows
from regimescope.monitor.imports.segments import SegmentWriter
from regimescope.monitor.imports.steps import Step, Steps
from regimescope.monitor.record import Reason


@dataclass(slots=True, kw_only=True)
class Imported:
    """What came of an import."""

    folder: Path
    format: str
    framework: str | None
    steps: int = 0
    "Rows that ended a step, those of superseded launches included."
    first: int | None = None
    last: int | None = None
    launches: list[tuple[int, int]] = field(default_factory=list)
    "First and last step of each."
    evaluations: int = 0
    envs: set[str] = field(default_factory=set)
    mapped: dict[str, list[str]] = field(default_factory=dict)
    "Our name -> source keys, marked where they are a proxy."
    unmapped: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    "In words."


class RunWriter:
    """Takes steps, writes segments, keeps count."""

    def __init__(
        self,
        folder: Path,
        file: Path,
        notes: Notes,
        mapper: Mapper,
        *,
        ratio_source: RatioSource | None,
        window: Effective | None,
        following: bool,
        dump: Dump | None = None,
    ) -> None:
        self._folder, self._file, self.notes, self._mapper = folder, file, notes, mapper
        self._ratio_source, self._window, self._following = ratio_source, window, following
        self._dump = dump
        self._segment: SegmentWriter | None = None
        self._launch = -1
        self._caught_up = False
        self._told: tuple[int, int] = (0, 0)
        self.imported = Imported(folder=folder, format=notes.format, framework=mapper.framework)

    def step(self, step: Step) -> None:
        """Write one step, or what is said of one later."""
        if step.launch != self._launch:
            self._begin(step)
        assert self._segment is not None  # _begin has opened it
        if step.checkpoint is not None:
            saved = {"path": step.checkpoint.path, "deleted": list(step.checkpoint.deleted)}
            self._segment.put("event", {"s": step.step, "kind": "checkpoint", "data": saved})
            return
        dump = None if step.late else self._dump
        rows = self._mapper.map(step.values if dump is None else {**step.values, **dump.at(step.step)})
        whole = rows.pop(None, {})
        t = time.time() if step.t is None and self._caught_up else step.t
        for env, values in rows.items():
            self.imported.envs.add(str(env))
            self._segment.put("scalars", {"s": step.step, "sl": {"env": env}, "m": values}, t=t)
        self._segment.put("scalars" if step.late else "step", {"s": step.step, "m": whole}, t=t)
        if dump is not None:
            dump.keep(step.step, self._folder, self._segment, self.notes)
        self._count(step)

    @property
    def knows_any(self) -> bool:
        """Whether some key is one of our names."""
        return bool(self._mapper.sources)

    def nothing_known(self) -> str:
        """Why a log is of no use as it is."""
        keys = sorted(self._mapper.unmapped)
        listed = ", ".join(keys[:12]) + (f" and {len(keys) - 12} more" if len(keys) > 12 else "")
        return (
            f"{self._file}: {self.imported.steps:,} steps read as {self.notes.format}, but none of its keys is known "
            f"({listed}): say what they are, --map {keys[0]}=reward_mean for instance (names: docs/metrics.md)"
        )

    def idle(self) -> None:
        """Nothing new: what was read becomes visible, and what comes now comes now."""
        self._caught_up = True
        if self._segment is not None:
            self._tell()
            self._segment.flush()

    def end(self, reason: Reason | None) -> Imported:
        """The last lines, and what came of it; None = the job may go on, only nobody reads it any more."""
        done = self.imported
        done.format = self.notes.format
        done.mapped = {
            name: [key if s.trust != "proxy" else f"{key} (proxy)" for key, s in found.items()]
            for name, found in sorted(self._mapper.sources.items())
        }
        if self._dump is not None:
            self._dump.tell(self.notes)
        done.unmapped, done.left_out = sorted(self._mapper.unmapped), self.notes.told()
        if self._segment is not None:
            self._tell()
            if reason is None:
                self._segment.close()
            else:
                self._segment.end(reason)
        return done

    def _begin(self, step: Step) -> None:
        if self._segment is not None:
            self._segment.end("stopped")
            self._mapper.restart()
        self._launch = step.launch
        origin = {"format": self.notes.format, "file": self._file.name}
        self._segment = SegmentWriter(
            self._folder, launch_no=step.launch, first_step=step.step, framework=self._mapper.framework,
            ratio_source=self._ratio_source, window=self._window, config=self.notes.config, name=self.notes.name,
            origin={**origin, "following": True} if self._following else origin,
        )  # fmt: skip
        self.imported.launches.append((step.step, step.step))

    def _count(self, step: Step) -> None:
        done = self.imported
        if step.late:
            done.evaluations += 1
            return
        done.steps += 1
        done.first = step.step if done.first is None else min(done.first, step.step)
        done.last = step.step if done.last is None else max(done.last, step.step)
        done.launches[-1] = (done.launches[-1][0], step.step)

    def _tell(self) -> None:
        """Which key fed which name, once more when there are new ones."""
        mapper, known = self._mapper, (len(self._mapper.sources), len(self._mapper.unmapped))
        if self._segment is None or known == self._told:
            return
        self._told = known
        mapped = [
            {"name": name, "key": s.key, "transform": s.transform, "trust": s.trust}
            for name, found in mapper.sources.items()
            for s in found.values()
        ]
        data = {"mapped": mapped, "unmapped": sorted(mapper.unmapped), "left_out": self.notes.told()}
        self._segment.put("event", {"kind": "metric_sources", "data": data})


def write_run(writer: RunWriter, rows: Rows, *, idle: Callable[[], bool] | None = None) -> Imported:
    """Read to the end of the log, or until `idle` says that it is over (asked whenever nothing new came).

    Raises ImportFailed: no step in it.
    """
    steps = Steps()
    for step in _until(steps.read(rows), writer, idle):
        writer.step(step)
    if not writer.imported.steps and idle is None:
        raise ImportFailed("the log holds no step with a number in it")
    if not writer.knows_any and idle is None:
        raise ImportFailed(writer.nothing_known())
    if steps.counted:
        writer.notes.leave_out("rows had no step and were counted", count=writer.imported.steps)
    return writer.end("finished" if idle is None else None)


def _until(steps: Iterator[Step | None], writer: RunWriter, idle: Callable[[], bool] | None) -> Iterator[Step]:
    for step in steps:
        if step is not None:
            yield step
            continue
        writer.idle()
        if idle is not None and idle():
            return
