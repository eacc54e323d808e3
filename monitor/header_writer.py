"""The first line of a trainer's segment: who writes, in which launch, under which weight rule, bounds and limits.

Checked before step 0. `Header.create` makes the segment file. Used by the Recorder; standard library only.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from regimescope import __version__
from regimescope.monitor.appender import Appender
from regimescope.monitor.bounds import Limits, WeightRule
from regimescope.monitor.edges import NAMED_EDGES
from regimescope.monitor.errors import RecorderError, RunError, WireError
from regimescope.monitor.ids import uuid7
from regimescope.monitor.launch import SegmentName, list_segments, read_header
from regimescope.monitor.rivals import start_after
from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.wire import WIRE_VERSION, encode, plain

RatioSource = Literal["behaviour", "proximal", "infer"]
Start = Literal["fresh", "resume", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a Recorder was told about its launch. Raises RecorderError for what makes no sense."""

    run_dir: Path
    "Folder of the run."
    name: str | None
    "Name shown to people."
    objective: str | None
    "dispo, cispo, grpo, ..."
    framework: str | None
    "Trainer and version."
    ratio_source: RatioSource | None
    "What the importance ratio divides by; None = not known, of a foreign log."
    eq_tol: float
    "|log r| up to this counts as r = 1."
    rule: WeightRule | None
    "With the bounds at the start; None = not declared."
    limits: Limits | None
    "Only of a run that accepts set_bounds."
    revision: int
    "Number of the bounds at the start."
    launch: str | None
    "None = a new id; with several ranks that of the job."
    start: Start
    "What made this launch."
    first_step: int
    "Older launches are superseded from it on."
    rank: int
    "From 0 on."
    ranks: int
    "Ranks that write segments."
    effect: tuple[int, int] | None
    "(every, seed): the entropy effect runs on a random 1/every of the tokens."
    can: tuple[str, ...]
    "Kinds of commands it accepts, and other capabilities."
    config: Mapping[str, object] | None
    "The job's configuration, shown to people."
    edges: Mapping[str, Sequence[float]] | None
    "Named bin edges besides the published ones."
    imported: Mapping[str, object] | None = None
    "Of a foreign log: its format and file, and `following` while it grows."

    def __post_init__(self) -> None:
        for name, value, allowed in (("ratio_source", self.ratio_source, RatioSource), ("start", self.start, Start)):
            if value not in get_args(allowed) and not (value is None and self.imported is not None):
                raise RecorderError(f"{name}={value!r}: want one of {', '.join(get_args(allowed))}")
        if not 0 <= self.rank < self.ranks:
            raise RecorderError(f"rank={self.rank} of ranks={self.ranks}: want 0 <= rank < ranks")
        if min(self.revision, self.first_step) < 0 or not (math.isfinite(self.eq_tol) and self.eq_tol >= 0):
            raise RecorderError("revision, first_step and eq_tol must be finite and not negative")
        if self.effect is not None and self.effect[0] < 1:
            raise RecorderError(f"effect={self.effect}: (every, seed) with every >= 1")
        self._check_limits()
        self._check_edges()
        if self.launch is None:
            object.__setattr__(self, "launch", str(uuid7()) if self.ranks == 1 else self._of_the_job())

    def _of_the_job(self) -> str:
        """The launch that all ranks of this start arrive at by themselves; never one that this rank was in before."""
        launch = launch_of_job(os.environ)
        if launch is None:
            raise RecorderError(
                "ranks > 1 needs launch=...: one id for this start of the job, the same on all ranks "
                "(neither Slurm nor a torchrun with --rdzv-id tells one)"
            )
        try:
            segments = list_segments(self.run_dir)
        except RunError as error:
            raise RecorderError(str(error)) from None
        for name, path in segments:
            with suppress(WireError):
                if name.rank == self.rank and read_header(path).get("launch") == launch:
                    raise RecorderError(
                        f"{self.run_dir} has a launch {launch!r} of rank {self.rank} already: two starts within one "
                        "job and restart count; give each its own launch=..., the same on all ranks"
                    )
        return launch

    def _check_limits(self) -> None:
        if ("set_bounds" in self.can) != (self.limits is not None):
            raise RecorderError(
                "limits and can=['set_bounds', ...] go together: a run that is only observed declares none"
            )
        if self.limits is None:
            return
        if self.rule is None:
            raise RecorderError(
                "limits without rule=...: a run that accepts bounds declares the weight rule that they belong to"
            )
        for sign in ("pos", "neg"):
            if getattr(self.rule, sign).base == "1" and getattr(self.limits, sign) is not None:
                raise RecorderError(f"{sign}: base 1 has no bounds to move, so no limits; take Limits.for_rule(rule)")
        problems = self.limits.problems(self.rule.bounds)
        if problems:
            raise RecorderError(
                f"bounds at the start: {'; '.join(problems)}. Change the bounds, or declare wider limits"
            )

    def _check_edges(self) -> None:
        for name, edges in (self.edges or {}).items():
            values = tuple(float(edge) for edge in edges)
            if not values or not all(map(math.isfinite, values)) or any(a >= b for a, b in pairwise(values)):
                raise RecorderError(f"edges {name!r}: want at least one, finite, ascending")
            if NAMED_EDGES.get(name, values) != values:
                raise RecorderError(f"edges {name!r} are a published set and never change: take another name")

    @property
    def launch_id(self) -> str:
        assert self.launch is not None  # set at the start
        return self.launch

    def create(self) -> Appender:
        """Create the run folder and the segment. Raises RecorderError."""
        folder = self.run_dir / "segments"
        try:
            name = SegmentName(start_ns=start_after(self.run_dir), rank=self.rank, pid=os.getpid(), part=0)
            fields = self._fields()
            folder.mkdir(parents=True, exist_ok=True)
            return Appender(
                folder,
                name,
                lambda part, q: encode(
                    {"v": WIRE_VERSION, "k": "header", "q": q, "t": time.time(), **fields, "part": part}
                ),
            )
        except OSError as error:
            raise RecorderError(
                f"cannot record in {folder}: {error.strerror}; make it writable or choose another run_dir"
            ) from None
        except (WireError, TypeError, RecursionError) as error:
            raise RecorderError(
                f"the header cannot be written: {error}; pass config and effect as plain values"
            ) from None

    def _fields(self) -> dict[str, object]:
        edges = {**NAMED_EDGES, **(self.edges or {})}
        return {
            "writer": f"regimescope {__version__}",
            "run": self._run_id(),
            "name": self.name,
            "launch": self.launch_id,
            "start": self.start,
            "role": "trainer",
            "rank": self.rank,
            "ranks": self.ranks,
            "part": 0,
            "first_step": self.first_step,
            "framework": self.framework,
            "objective": self.objective,
            "ratio_source": self.ratio_source,
            "eq_tol": self.eq_tol,
            "rule": None if self.rule is None else self.rule.to_wire(),
            "revision": self.revision,
            "bounds": None if self.rule is None else self.rule.bounds.to_wire(),
            "limits": None if self.limits is None else self.limits.to_wire(),
            "effect": None if self.effect is None else {"every": self.effect[0], "seed": self.effect[1]},
            "can": list(self.can),
            "buckets": list(BUCKETS),
            "edges": plain({name: list(values) for name, values in edges.items()}),
            "config": plain(self.config or {}),
            **({} if self.imported is None else {"imported": plain(self.imported)}),
        }

    def _run_id(self) -> str:
        """The id that the run has, else a new one, which all ranks of this launch arrive at."""
        known = run_id(self.run_dir)
        if known is not None:
            return known
        slug = re.sub(r"[^a-z0-9]+", "-", (self.name or self.run_dir.resolve().name).lower()).strip("-")
        return f"{slug or 'run'}-{hashlib.sha256(self.launch_id.encode()).hexdigest()[:8]}"


def launch_of_job(environ: Mapping[str, str]) -> str | None:
    """Job id and restart count of this start as Slurm and torchrun tell them; None where neither does.

    >>> launch_of_job({"SLURM_JOB_ID": "8812", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"})
    'slurm-8812.0.1'
    """
    parts = []
    if environ.get("SLURM_JOB_ID"):
        step, restarts = environ.get("SLURM_STEP_ID") or "batch", environ.get("SLURM_RESTART_COUNT") or "0"
        parts.append(f"slurm-{environ['SLURM_JOB_ID']}.{step}.{restarts}")
    run, restarts = environ.get("TORCHELASTIC_RUN_ID"), environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    if run and (run != "none" or parts):  # none: torchrun was given no id, so all its starts have this one
        parts.append(f"torchrun-{run}.{restarts}")
    return "/".join(parts) or None


def run_id(run_dir: str | os.PathLike[str]) -> str | None:
    """Id of a run as its oldest readable trainer's header tells it; None for a new run."""
    try:
        segments = list_segments(run_dir)
    except RunError:
        return None
    for name, path in segments:
        if name.is_monitor:
            continue
        try:
            known = read_header(path).get("run")
        except WireError:
            continue
        if isinstance(known, str) and known:
            return known
    return None
