"""Errors of the monitor. Each message names what was wrong, where, and what to do.

RegimescopeError
├── BoundsError        bounds, weight rule or limits that make no sense
├── RecorderError      a Recorder that cannot start (it never raises later)
├── WireError          a line or header that is not of the wire format
│   └── WireVersionError   written by a newer regimescope
├── RunError           a run folder that is missing or holds no segments
├── RulesFileError     a rules.toml below the root that cannot be used
├── NotifyFileError    a notify.toml below the root, or a target in it, that cannot be used
├── ImportFailed       a foreign log that cannot be imported
├── LintError          settings of a framework that cannot be read
├── ReportError        a report that cannot be written
├── RolloutError       a Parquet file of rollouts that cannot be read
├── StoreError         the index cannot be used
│   └── StoreOwned     another process owns the index of this root
└── ControlError       a command that cannot be issued
"""


class RegimescopeError(Exception):
    """A user's mistake or a broken surrounding: shown as one line, without a traceback."""


class BoundsError(RegimescopeError, ValueError):
    pass


class RecorderError(RegimescopeError):
    pass


class WireError(RegimescopeError, ValueError):
    pass


class WireVersionError(WireError):
    pass


class RunError(RegimescopeError):
    pass


class RulesFileError(RegimescopeError):
    pass


class NotifyFileError(RegimescopeError):
    pass


class ImportFailed(RegimescopeError):
    pass


class LintError(RegimescopeError):
    pass


class ReportError(RegimescopeError):
    pass


class RolloutError(RegimescopeError):
    pass


class StoreError(RegimescopeError):
    pass


class StoreOwned(StoreError):
    """Another process owns the index; `address` is its URL where known."""

    def __init__(self, message: str, address: str | None = None) -> None:
        super().__init__(message)
        self.address = address


class ControlError(RegimescopeError):
    pass
