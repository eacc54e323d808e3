"""regimescope: live diagnostics for RLVR training runs.

The parts are `regimescope.detectors` (findings from a stream of metrics), `regimescope.monitor` (recording, store,
control, dashboard) and `regimescope.trainer` (a reference trainer). Importing this package imports none of them.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("regimescope")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
