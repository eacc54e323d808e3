"""Steps of a foreign log as segments of a run folder, which the index reads like those of the Recorder.

Every launch of the log is a segment. Its header says that it was imported, from which format and file; events at the
end say which key fed which name and what was left out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regimescope.monitor.appender import Appender
from regimescope.monitor.errors import ImportFailed, RecorderError
from regimescope.monitor.framework_windows import Effective
from regimescope.monitor.header_writer import Header, RatioSource
from regimescope.monitor.wire import WIRE_VERSION, encode

_BUFFER = 1 << 18


class SegmentWriter:
    """Writes one launch. Raises ImportFailed where the disk does."""

    def __init__(
        self,
        folder: Path,
        *,
        launch_no: int,
        first_step: int,
        framework: str | None,
        ratio_source: RatioSource | None,
        window: Effective | None,
        config: Mapping[str, object],
        name: str | None,
        origin: Mapping[str, object],
    ) -> None:
        """origin: format and file, and `following` where the log still grows. The launch's id comes of the file's name
        and the number, so that an import done again keeps what people said about its alerts.
        """
        try:
            header = Header(
                run_dir=folder, name=name, objective=None if window is None else window.objective,
                framework=framework, ratio_source=ratio_source, eq_tol=0.0,
                rule=None if window is None else window.rule, limits=None, revision=0,
                launch=_launch_id(origin, launch_no), start="fresh" if launch_no == 0 else "resume",
                first_step=first_step, rank=0, ranks=1, effect=None, can=(), config=config, edges=None,
                imported=origin,
            )  # fmt: skip
            self._appender: Appender = header.create()
        except RecorderError as error:
            raise ImportFailed(str(error)) from None
        self._q = 0
        self._buffer = bytearray()

    def put(self, kind: str, fields: Mapping[str, Any], *, t: float | None = None) -> None:
        """One line; t: unix seconds, None = the log does not tell."""
        self._q += 1
        at = {} if t is None else {"t": t}
        self._buffer += encode({"v": WIRE_VERSION, "k": kind, "q": self._q, **at, **fields})
        if len(self._buffer) >= _BUFFER:
            self.flush()

    @property
    def start_ns(self) -> int:
        """Start of the recording, as in the name of the segment."""
        return self._appender.name.start_ns

    def flush(self) -> None:
        """Write what is buffered."""
        data, self._buffer = bytes(self._buffer), bytearray()
        if data and self._appender.append(data, self._q) != len(data):
            error = self._appender.error
            reason = os.strerror(error.errno) if error is not None and error.errno else str(error)
            raise ImportFailed(f"cannot write {self._appender.path}: {reason}")

    def end(self, reason: str) -> None:
        """The last line, and the file is given back."""
        self.put("end", {"reason": reason})
        self.close()

    def close(self) -> None:
        """Without an end: the log still grows, or was broken off."""
        self.flush()
        self._appender.close()


def _launch_id(origin: Mapping[str, object], launch_no: int) -> str:
    digest = hashlib.sha256(f"{origin.get('file')}/{launch_no}".encode()).hexdigest()
    return f"import-{digest[:16]}"
