"""The JSON routes: GET /api/series for the charts, POST /api/commands for the command line, GET /api/health for
`regimescope doctor`, GET /api/plotly.min.js.

Every route but the library file wants the read token in the header x-regimescope-token. Errors are
{"error": one sentence} with a 4xx status; 503 with the reason while the index cannot be used.
"""

from __future__ import annotations

import gzip
from functools import cache

import plotly.offline
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regimescope.monitor.ui.command_api import commands
from regimescope.monitor.ui.health_api import health
from regimescope.monitor.ui.series_api import series


def plotly_library(request: Request) -> Response:
    """plotly.py's own plotly.min.js, kept by the browser for ever where ?v= is its version.

    It carries no data and takes no token: a script tag cannot send one.
    """
    packed = "gzip" in request.headers.get("accept-encoding", "")
    kept = request.query_params.get("v") == plotly.offline.get_plotlyjs_version()
    headers = {
        "vary": "accept-encoding",
        "cache-control": "public, max-age=31536000, immutable" if kept else "no-cache",
    }
    if packed:
        headers["content-encoding"] = "gzip"
    return Response(_library(packed), media_type="text/javascript", headers=headers)


@cache
def _library(packed: bool) -> bytes:
    text: bytes = plotly.offline.get_plotlyjs().encode()
    return gzip.compress(text, 9, mtime=0) if packed else text


ROUTES = [
    Route("/api/series", series, methods=["GET"]),
    Route("/api/commands", commands, methods=["POST"]),
    Route("/api/health", health, methods=["GET"]),
    Route("/api/plotly.min.js", plotly_library, methods=["GET"]),
]
