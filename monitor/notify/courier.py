"""One thread per target: takes letters, sends them one after the other, tries again. A target that hangs holds up only
its own letters.

Two pauses and three tries, then the letter counts as failed and is tried again every few minutes for as long as the
monitor lives: nothing is given up. Letters about one alert that wait together become one. All waiting goes by the
monotonic clock; only quiet hours look at the time of day.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from regimescope.monitor.notify.due import FAILED, SENT, Notice
from regimescope.monitor.notify.message import Message
from regimescope.monitor.notify.post import post
from regimescope.monitor.notify.targets import Target

PAUSES_S = (1.0, 4.0, 30.0, 60.0, 120.0)
"After the first, second, … failure in a row; the last one again and again."
TRIES = 3
"After so many the notice is shown as failed."
MAX_LETTERS = 1000
"That wait for one target; what does not fit stays due and comes later."
_LATE_S = 120.0
_LOOK_S = 20.0
"Quiet hours may end, or the clock be set."


@dataclass(slots=True, kw_only=True)
class Letter:
    """What waits about one alert."""

    run_key: int
    notices: list[Notice]
    "One per kind, the newest last: its message is sent, and all of them count as told."
    message: Message
    since: float = field(default_factory=time.monotonic)

    @property
    def urgent(self) -> bool:
        return any(notice.severity == "critical" for notice in self.notices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How a target is doing; times are unix seconds of this machine."""

    waiting: int = 0
    sent_at: float | None = None
    failed_at: float | None = None
    why: str = ""
    "Of the last failure; empty after a delivery."


Told = Callable[[int, list[Notice], str, str], None]
"run key, notices, state, why."


class Courier:
    """The thread of one target. `told` is called in it, after each delivery and after the last try of a round."""

    def __init__(self, target: Target, told: Told, *, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self.target = target
        self._told, self._pauses = told, pauses_s
        self._letters: OrderedDict[str, Letter] = OrderedDict()
        self._tests: list[tuple[Message, Callable[[str], None]]] = []
        self._changed = threading.Condition()
        self._closing = False
        self._failures = 0
        self._next_try = self._next_calm = 0.0
        self._delivery = Delivery()
        self._thread = threading.Thread(target=self._run, name=f"regimescope-notify-{target.name}", daemon=True)
        self._thread.start()

    @property
    def delivery(self) -> Delivery:
        """As of now."""
        with self._changed:
            d = self._delivery
            return Delivery(waiting=len(self._letters), sent_at=d.sent_at, failed_at=d.failed_at, why=d.why)

    def put(self, run_key: int, notice: Notice, message: Message) -> bool:
        """Queue a notice; False where there is no room. One that waits already stays as it is."""
        with self._changed:
            letter = self._letters.get(notice.alert)
            if letter is None:
                if len(self._letters) >= MAX_LETTERS:
                    return False
                self._letters[notice.alert] = Letter(run_key=run_key, notices=[notice], message=message)
            elif notice.key not in {n.key for n in letter.notices}:
                letter.notices.append(notice)
                letter.message = message
            self._changed.notify()
            return True

    def drop(self, alert: str) -> None:
        """Nothing about this alert is to go out now: somebody called it false, or another one explains it."""
        with self._changed:
            self._letters.pop(alert, None)

    def test(self, message: Message, answer: Callable[[str], None]) -> None:
        """Send this next, once, and answer as `post` does."""
        with self._changed:
            self._tests.append((message, answer))
            self._changed.notify()

    def close(self) -> None:
        """No further letter is begun."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the one that is on its way."""
        self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._tests and self._due() is None:
                    self._changed.wait(self._idle_s())
                if self._closing:
                    return
                test = self._tests.pop(0) if self._tests else None
                letter = None if test else self._due()
                message, notices = (letter.message, list(letter.notices)) if letter else (None, [])
            if test is not None:
                test[1](self._post(test[0]))
            elif letter is not None and message is not None:
                self._deliver(letter, message, notices)

    def _due(self) -> Letter | None:
        """The first letter that may go now, those about critical alerts first."""
        now = time.monotonic()
        if now < self._next_try:
            return None
        urgent = next((letter for letter in self._letters.values() if letter.urgent), None)
        if urgent is not None or now < self._next_calm:
            return urgent
        local = time.localtime()
        if self.target.is_quiet(60 * local.tm_hour + local.tm_min):
            return None
        return next(iter(self._letters.values()), None)

    def _idle_s(self) -> float | None:
        if not self._letters:
            return None
        now = time.monotonic()
        waits = [at - now for at in (self._next_try, self._next_calm) if at > now]
        return min([*waits, _LOOK_S])

    def _deliver(self, letter: Letter, message: Message, notices: list[Notice]) -> None:
        late = time.monotonic() - letter.since
        why = self._post(message.delayed(late) if late > _LATE_S else message)
        if not why:  # told first, so that nobody finds it neither told nor waiting
            self._told(letter.run_key, notices, SENT, "")
        with self._changed:
            if not why:
                self._failures, self._next_calm = 0, time.monotonic() + self.target.interval_s
                self._forget(letter, notices)
            else:
                self._failures += 1
                pause = self._pauses[min(self._failures, len(self._pauses)) - 1]
                self._next_try = time.monotonic() + pause
                if notices[0].alert in self._letters:
                    self._letters.move_to_end(notices[0].alert)
        if why and self._failures == TRIES:
            self._told(letter.run_key, notices, FAILED, why)

    def _forget(self, letter: Letter, notices: list[Notice]) -> None:
        """These were told; what came meanwhile stays."""
        letter.notices = [notice for notice in letter.notices if notice not in notices]
        letter.since = time.monotonic()
        if not letter.notices:
            self._letters.pop(notices[0].alert, None)

    def _post(self, message: Message) -> str:
        why = post(self.target.url, message.title, message.body, kind=message.kind)
        now = time.time()
        with self._changed:
            old = self._delivery
            self._delivery = (
                Delivery(sent_at=old.sent_at, failed_at=now, why=why)
                if why
                else Delivery(sent_at=now, failed_at=old.failed_at)
            )
        return why
