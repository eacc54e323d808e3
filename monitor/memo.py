"""The last answer per key, kept while its stamp stays the same: what the pages read is asked for every second and
changes rarely.

    alerts = memo.get((instance, run_key), version.said, lambda: query.alerts(con, run_key))

Thread-safe; two threads that miss at once both make the answer. Take the stamp before the data is read: then an answer
can be newer than its stamp, never older.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_KEYS = 64


class Memo(Generic[T]):
    """At most MAX_KEYS answers; the one that was used longest ago goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[Hashable, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, stamp: Hashable, make: Callable[[], T]) -> T:
        """The answer made under this stamp, or a new one."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None and found[0] == stamp:
                self._kept.move_to_end(key)
                return found[1]
        made = make()
        with self._lock:
            self._kept[key] = (stamp, made)
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_KEYS:
                self._kept.popitem(last=False)
        return made
