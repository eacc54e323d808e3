"""Lines of text out of a file: any encoding, terminal colours and ray's prefixes taken off, progress bars cut apart.

`text_lines(path, notes)` yields a line at a time in bounded memory. With `follow` it waits for more and yields None
while nothing comes. A carriage return ends a line as a newline does: that is how progress bars are drawn.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from regimescope.monitor.imports.rows import Notes

CHUNK = 1 << 20
MAX_LINE = 16 << 20
"A longer line is cut: no log has one, a broken file may."
POLL_S = 0.5
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
_RAY = re.compile(r"^\s*\([^()\n]{1,80}pid=\d+[^()\n]{0,80}\)\s?")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_BREAK = re.compile(r"\r\n|\n|\r")

Progress = Callable[[int, int], None]
"Called with bytes read and bytes in all."


def text_lines(
    path: Path, notes: Notes, *, follow: bool = False, progress: Progress | None = None
) -> Iterator[str | None]:
    """Lines without their ends. None = nothing new, only with `follow`. Raises OSError."""
    with _opened(path) as file:
        decoder = codecs.getincrementaldecoder(encoding_of(path))(errors="replace")
        rest, done, size = "", 0, os.stat(path).st_size
        while True:
            data = file.read(CHUNK)
            if not data and follow:
                yield None
                time.sleep(POLL_S)
                continue
            done += len(data)
            if progress is not None:
                progress(min(done, size), size)
            text = rest + decoder.decode(data, final=not data)
            if strange := text.count("�", len(rest)):
                notes.leave_out("characters are no text in its encoding", count=strange)
            *lines, rest = _BREAK.split(text)
            yield from map(plain, lines)
            if len(rest) > MAX_LINE:
                notes.leave_out("lines longer than 16 MiB were cut")
                rest = rest[:CHUNK]
            if not data:
                break
        if rest:
            yield plain(rest)


def plain(line: str) -> str:
    """The line without terminal escapes and the prefix of the process that printed it.

    >>> plain("\\x1b[36m(TaskRunner pid=42)\\x1b[0m step:1 - a:2 [repeated 3x across cluster]")
    'step:1 - a:2'
    """
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "pid=" in line:
        line = _RAY.sub("", line)
    if "[repeated" in line:
        line = _REPEATED.sub("", line)
    return line


def encoding_of(path: Path) -> str:
    """By its first bytes: UTF-16 where it says so or every second byte is empty, else UTF-8."""
    with _opened(path) as file:
        head = file.read(4096)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if len(head) >= 64 and head[1::2].count(0) > 0.8 * len(head[1::2]) and 0 not in head[0::2]:
        return "utf-16-le"
    return "utf-8"


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, unpacked where it is a gzip file. Raises OSError."""
    with _opened(path) as file:
        return file.read(size)


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else open(path, "rb")
