"""Where things lie that are not in a run folder: the root, its index, and beside that what a root that cannot be
written has no room for (`endpoint.json`, the monitor's own segments). Standard library only.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def default_root(given: str | None) -> Path:
    """Folder above the runs: what was given, else $REGIMESCOPE_ROOT, else ./runs."""
    return Path(given or os.environ.get("REGIMESCOPE_ROOT") or "runs")


def cache_folder() -> Path:
    """REGIMESCOPE_CACHE, else `regimescope` in the user's cache folder."""
    if named := os.environ.get("REGIMESCOPE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "regimescope"


def index_path(root: Path) -> Path:
    """`<user cache>/regimescope/<hash of root>/monitor.duckdb`, on local disk also where the root is not;
    REGIMESCOPE_CACHE replaces the first two.
    """
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return cache_folder() / digest / "monitor.duckdb"


def spare_segments(root: Path, run: str) -> Path:
    """Folder of the monitor's own segments of a run (its path below the root) that cannot be written."""
    return index_path(root).parent / "segments" / run
