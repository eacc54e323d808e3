"""An append-only segment file in parts: whole lines or nothing, a new part at 64 MiB.

A line that was once complete in the file is never taken back (a reader may have it); a torn rest is cut off at once.
Standard library only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from regimescope.monitor.launch import SegmentName

PART_BYTES = 64 << 20


class Appender:
    """Writes one segment. Not thread-safe: one writer at a time, which its owner sees to."""

    def __init__(
        self, folder: Path, name: SegmentName, header: Callable[[int, int], bytes], *, part_bytes: int = PART_BYTES
    ) -> None:
        """Creates the file of part 0. `header(part, q)`: first line of a part. Raises OSError."""
        self._folder, self.name, self._header, self._part_bytes = folder, name, header, part_bytes
        self._fd = -1
        self._offset = 0
        self._torn = False
        self.error: OSError | None = None
        "The last failure of the file; an append that keeps less than it was given has set it."
        self._open(name, 0)

    @property
    def path(self) -> Path:
        """File of the current part."""
        return self._folder / str(self.name)

    def append(self, data: bytes, last_q: int) -> int:
        """Append whole lines; how many bytes of them stay in the file, always up to a newline.

        Never raises: see `error`. `last_q`: sequence number of the record before these, which the header of a new part
        repeats.
        """
        if self._offset + len(data) > self._part_bytes:
            self._next_part(last_q)
        return self._write(data) if self._mend() else 0

    def close(self) -> None:
        """Give the file back; a later append fails as a closed file does."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> int:
        view, done = memoryview(data), 0
        try:
            while done < len(data):
                done += os.write(self._fd, view[done:])
            kept = len(data)
        except OSError as error:  # disk full, quota, file system gone
            self.error = error
            kept = data.rfind(b"\n", 0, done) + 1
            self._torn = done > kept
        self._offset += kept
        self._mend()
        return kept

    def _mend(self) -> bool:
        """Cut a torn rest off.

        Where that fails it is tried again before the next write, and nothing is written until then.
        """
        if self._torn:
            try:
                os.ftruncate(self._fd, self._offset)
                self._torn = False
            except OSError as error:
                self.error = error
        return not self._torn

    def _next_part(self, last_q: int) -> None:
        """Go on in a new part, or in this one where there is no space or no descriptor for another file."""
        with suppress(OSError):
            self._open(replace(self.name, part=self.name.part + 1), last_q)

    def _open(self, name: SegmentName, q: int) -> None:
        path, line = self._folder / str(name), self._header(name.part, q)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self.close()
        self._fd, self.name, self._offset, self._torn = descriptor, name, len(line), False
