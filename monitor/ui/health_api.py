"""GET /api/health: does the index work, and how far behind is it; what `regimescope doctor` asks a running server.

{"version", "degraded": null or {"reason", "since"}, "tick_age_s", "unread_bytes", "lag_s", "lost", "dropped",
"bad_lines", "runs": [one object per run with the same counts]}. Told from memory and file sizes, so it answers while
the index does not.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from regimescope import __version__
from regimescope.monitor.ui.api import BadRequest, authorised, degraded, refused

_COUNTS = ("unread_bytes", "lost", "dropped", "bad_lines")


def health(request: Request) -> Response:
    """Status 200 also while degraded: the server itself works."""
    try:
        ctx = authorised(request)
    except BadRequest as error:
        return refused(str(error), error.status)
    progress = ctx.monitor.progress
    runs = progress.runs(ctx.monitor.root)
    body = {
        "version": __version__,
        "degraded": degraded(ctx),
        "tick_age_s": round(progress.tick_age_s, 3),
        "lag_s": round(max((run.lag_s for run in runs), default=0.0), 3),
        **{name: sum(getattr(run, name) for run in runs) for name in _COUNTS},
        "runs": [{**asdict(run), "lag_s": round(run.lag_s, 3)} for run in runs],
    }
    return JSONResponse(body, headers={"cache-control": "no-store"})
