"""Identifiers that sort by time: version-7 UUIDs (RFC 9562, section 5.7). Python has `uuid.uuid7` from 3.14 on only.

Ids of one process are strictly increasing, also within a millisecond and when the clock steps back. Standard library
only.
"""

from __future__ import annotations

import os
import threading
import time
import uuid

_VERSION = 7 << 76
_VARIANT = 0b10 << 62
_COUNTER_BITS = 12 + 62  # rand_a and rand_b, used as one counter that starts at a random place every millisecond
_LOW_62 = (1 << 62) - 1


class _Source:
    """Last (millisecond, counter) handed out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ms = 0
        self._counter = 0

    def next(self) -> tuple[int, int]:
        with self._lock:
            now = time.time_ns() // 1_000_000
            if now > self._ms:
                self._ms, self._counter = now, int.from_bytes(os.urandom(9)) & ((1 << (_COUNTER_BITS - 2)) - 1)
            else:
                self._counter += 1 + int.from_bytes(os.urandom(4))  # stays unguessable; 2^72 of room never runs out
            return self._ms, self._counter


_source = _Source()


def uuid7() -> uuid.UUID:
    """A new version-7 UUID, greater than every one before it in this process."""
    ms, counter = _source.next()
    high = (ms & ((1 << 48) - 1)) << 80 | _VERSION | (counter >> 62) << 64
    return uuid.UUID(int=high | _VARIANT | (counter & _LOW_62))


def is_uuid(text: str) -> bool:
    """Whether `text` is a UUID in its canonical lower-case form (and so a safe file name)."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
