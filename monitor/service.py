"""The monitor of one root: ingests, runs the detectors, answers what is live, and takes what people ask (`requests`).
One object, one background thread.

`start()` runs `tick()` every `tick_s` seconds; tests call `tick()` themselves. Readers take cursors of `monitor.store`.
The arrival of rows is timed by this process's own clock, never by the trainer's.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from regimescope.detectors import Blind, Rules
from regimescope.detectors.rules import Table
from regimescope.monitor import query
from regimescope.monitor.compaction import Compactor
from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.ingest import Ingester
from regimescope.monitor.live import STALE_FLOOR_S, Liveness, liveness
from regimescope.monitor.memo import Memo
from regimescope.monitor.progress import Progress
from regimescope.monitor.replay import Recent, Replayer
from regimescope.monitor.requests import Requests
from regimescope.monitor.rules_file import rules_of, table_of
from regimescope.monitor.store import Store, is_damaged

if TYPE_CHECKING:
    from regimescope.monitor.notify.notifier import Notifier

__all__ = ["Head", "Liveness", "Monitor", "Recent", "Version"]

log = logging.getLogger(__name__)

BACK_OFF_S = 5.0
"Pause after the index failed, a full disk say."
COMPACT_EVERY_S = 5.0
"Between two pieces of compaction while lines keep coming, and between two looks for something to compact."
COMPACT_AGAIN_S = 600.0
"No compaction for so long after the index failed: it needs space."

MOST_WAITING = 16
"Requests that may wait for news at a time: each holds one of the server's threads."
_BROKEN = (duckdb.Error, OSError, RegimescopeError)
"What a full disk, and an index that is not what it was, raise."


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How far a run is served."""

    epoch: str
    "Changes when steps already sent may differ: another launch, late numbers, a rebuilt index, another server."
    last: int
    "Last step given to the detectors; -1 = none."


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What was read of a run is good as long as its version stays the same."""

    rows: int = 0
    "Moves with everything new."
    said: int = 0
    "Moves with launches, states, checkpoints, commands, answers, marks, losses: with all but numbers."
    alerts: int = 0
    "Moves when the alerts were written anew."


class Monitor:
    """Ingestion, detectors and control of all runs below a root. Raises StoreOwned when another process owns it, and
    RulesFileError for a rules.toml below the root that cannot be used.
    """

    def __init__(
        self,
        root: Path,
        *,
        read_only: bool = False,
        actor: str | None = None,
        tick_s: float = 0.25,
        store: Store | None = None,
        only: Sequence[str] | None = None,
        rollouts: bool = True,
    ) -> None:
        """`read_only`: no commands and no marks. `actor`: who commands are by that bring no name; default the OS user.

        `store`: default is to own the index of the root. `only`: paths of the runs to read; None = all.
        `rollouts`: their files too.
        """
        self.root = Path(root).resolve()
        self.tick_s = tick_s
        self.rules: Rules = rules_of(self.root)
        "In force as long as this monitor lives."
        self.rule_table: Table = table_of(self.root)
        "The same as a table; nobody changes it."
        self.store = store or Store.open(self.root)
        self.requests = Requests(
            self.store, actor=actor, read_only=read_only, run_of=self.run, liveness_of=self.liveness
        )
        "Takes commands and marks."
        self.degraded: str | None = None
        "Why the index does not work at the moment; None = it does."
        self.degraded_since: float | None = None
        "Unix seconds of this process's clock."
        self.progress = Progress()
        "How far the tail is; known also while the index does not work."
        self.notifier: Notifier | None = None
        "Tells people about alerts; the server sets it before `start`, unless it is read-only."
        self._untold: set[int] = set()
        self._only, self._rollouts = only, rollouts
        self._ingester = Ingester(self.store, only=only, rollouts=rollouts)
        self._replayer = Replayer(self.store, self.rules)
        self._compactor = Compactor(self.store)
        self._compact_at = 0.0
        self._doubt: duckdb.Error | None = None
        self._versions: dict[int, Version] = {}
        self._run_rows: Memo[query.RunRow | None] = Memo()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._told = threading.Condition()
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read everything there is, then keep up in a background thread."""
        self._thread = threading.Thread(target=self._run, name="regimescope-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, close the index."""
        self._closing.set()
        self._announce(True)
        if self._thread is not None:
            self._thread.join(timeout=30)
        if self.notifier is not None:
            self.notifier.close()
        self.requests.close()
        self.store.close()

    def tick(self) -> bool:
        """One round: new lines in, detectors on, finished commands cleared away. True when there was news."""
        with self._lock:
            started = time.monotonic()
            if self._doubt is not None:
                self._ask_index(self._doubt)
            changed = self._ingester.tick()
            said = self._ingester.said
            silence = self._ingester.silence()
            self._replayer.arrived(self._ingester.first_steps)
            written = self._replayer.update(changed, silence, said, self._ingester.held)
            expired = self.requests.expired()
            self._count(changed | said, said | expired, written)
            self._notify(written | said)
            for run_key in said | self.requests.unseen(set(silence)) | expired:
                self.requests.retract(run_key)
            self._compactor.changed(changed | said)
            if changed or said or not self.progress.ticks:
                self._note_progress(started, changed)
            else:
                self.progress.idle(started)
            return bool(changed)

    def catch_up(self) -> None:
        """Read everything there is and run the detectors over it, once: for commands that only read."""
        with self._lock:
            changed = self._ingester.catch_up()
            self._count(changed, changed, self._replayer.update(changed, {}))

    def doubt(self, error: duckdb.Error) -> None:
        """A reader was refused: the next tick asks the index, so that it is opened again when it is unusable."""
        log.info("a reader of the index: %s", error)
        self._doubt = error

    def version(self, run_key: int) -> Version:
        """Of what there is of this run; a page keeps what it read while this stays the same."""
        return self._versions.get(run_key, Version())

    def recent(self, run_key: int) -> Recent | None:
        """The last steps of slice 0 from memory, where the run was watched while they came."""
        return self._replayer.recent(run_key)

    def run(self, run_key: int) -> query.RunRow | None:
        """The run of this key, or None; read once per version."""

        def read() -> query.RunRow | None:
            with self.store.cursor() as con:
                return query.run_by_key(con, run_key)

        return self._run_rows.get((self.store.instance, run_key), self.version(run_key), read)

    def _count(self, changed: set[int], said: set[int], written: set[int]) -> None:
        for key in changed | said | written:
            old = self.version(key)
            self._versions[key] = Version(
                rows=old.rows + 1, said=old.said + (key in said), alerts=old.alerts + (key in written)
            )

    def head(self, run_key: int) -> Head:
        """How far the detectors are with this run."""
        launch_no, last = self._replayer.head(run_key)
        epoch = f"{self.store.instance}-{run_key}-{launch_no}-{self._replayer.late(run_key)}"
        return Head(epoch=epoch, last=last)

    def wait_for_news(self, run_key: int, seen: Head, seconds: float) -> Head:
        """The head of the run as soon as it is another one than `seen`, else after so many seconds. Where many wait
        already it is told at once, for each holds a thread of the server.
        """
        head = self.head(run_key)
        if head != seen or not self._waiting.acquire(blocking=False):
            return head
        until = time.monotonic() + seconds
        try:
            with self._told:
                while (head := self.head(run_key)) == seen and not self._closing.is_set():
                    left = until - time.monotonic()
                    if left <= 0 or not self._told.wait(left):
                        break
            return head
        finally:
            self._waiting.release()

    def _announce(self, news: bool) -> None:
        if news:
            with self._told:
                self._told.notify_all()

    @property
    def problems(self) -> dict[str, str]:
        """Segment that could not be read -> why, at the last try."""
        return dict(self._ingester.problems)

    def warming(self, run_key: int) -> tuple[int, int]:
        """Points that the detectors have seen, and need before the shift rules speak."""
        return self._replayer.warming(run_key)

    def blind(self, run_key: int) -> list[Blind]:
        """Rules that cannot speak on this run, with the reason."""
        return self._replayer.blind(run_key)

    def liveness(self, run_key: int) -> Liveness:
        """Is the run alive: silence by this process's clock, against its own step time."""
        silence = self._ingester.silence().get(run_key)
        return liveness(self.run(run_key), self._replayer.median_step_s(run_key), silence)

    def silent_s(self, run_key: int) -> float | None:
        """Seconds since the last new byte of its trainer; None where no file could grow."""
        return self._ingester.silence().get(run_key)

    def stale_s(self, run_key: int) -> float | None:
        """Seconds of silence of a run that should talk; None = it is not stale. Costs nothing while it talks."""
        if self._ingester.silence().get(run_key, math.inf) <= STALE_FLOOR_S:
            return None
        live = self.liveness(run_key)
        return live.silent_s if live.stale else None

    def _ask_index(self, doubt: duckdb.Error) -> None:
        if is_damaged(doubt):
            raise doubt
        with self.store.cursor() as con:
            con.execute("SELECT 1").fetchall()
        self._doubt = None

    def _notify(self, run_keys: set[int]) -> None:
        """Runs whose alerts may have changed; one that is still being read waits, for its alerts are not those of
        now.
        """
        if self.notifier is not None:
            self._untold |= run_keys
            ready = self._untold - self._ingester.behind
            self._untold -= ready
            self.notifier.changed(ready)

    def _note_progress(self, started: float, changed: set[int]) -> None:
        paths = self._ingester.paths()
        first = not self.progress.ticks
        self.progress.ticked(
            started,
            files=self._ingester.files(None if first else changed),
            behind=[paths[key] for key in self._ingester.behind if key in paths],
            paths=paths.values(),
        )

    def _compact(self, news: bool) -> bool:
        """A piece of compaction where nothing waits to be read; True = the next one may follow at once."""
        now = time.monotonic()
        if self._ingester.behind or now < self._compact_at:
            return False
        self._compact_at = now + COMPACT_AGAIN_S  # holds when it raises
        found = self._compactor.work(self._ingester.finished())
        self._compact_at = 0.0 if found and not news else time.monotonic() + COMPACT_EVERY_S
        return found and not news

    def _run(self) -> None:
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                news = self.tick()
                self._announce(news)
                self.degraded = self.degraded_since = None
                at_once = self._compact(news) or self._ingester.more
            except _BROKEN as error:
                self._degrade(error)
                damaged = isinstance(error, duckdb.Error) and is_damaged(error)
                while not self._closing.wait(BACK_OFF_S) and not self._recover(damaged):
                    pass
                continue
            if not at_once:
                self._closing.wait(max(0.0, self.tick_s - (time.monotonic() - started)))

    def _degrade(self, error: Exception) -> None:
        self.degraded_since = self.degraded_since or time.time()
        self.degraded = str(error).splitlines()[0]
        log.warning("index: %s; trying again in %.0f s", self.degraded, BACK_OFF_S)

    def _recover(self, damaged: bool) -> bool:
        """Close and open the index again; what was committed is there, the rest comes from the segments, and all of it
        where the file is damaged.

        False where that fails too, whatever the reason: it is tried again, for the thread must live.
        """
        try:
            self.store.reopen(discard=damaged)
            with self._lock:
                self._ingester = Ingester(self.store, only=self._only, rollouts=self._rollouts)
                if self.store.rebuilt:
                    self._replayer = Replayer(self.store, self.rules)
                else:  # what it knows still holds: pages go on showing it
                    self._replayer.again()
                self._compactor = Compactor(self.store)
                self.progress.ticks = 0  # the next tick says anew how far every file was read
                self._doubt = None
        except _BROKEN as error:
            self._degrade(error)
            return False
        return True
