"""What the server can be told, and what that means for Streamlit: address, port, theme, what its defaults get wrong.

`regimescope serve` does not see the repository's .streamlit/config.toml, so server_config() carries it all; a test
holds the two equal. Without an address Streamlit would listen on all interfaces and ask the internet for its own name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from regimescope.monitor.errors import RegimescopeError
from regimescope.monitor.token_stats import BUCKETS
from regimescope.monitor.ui.palette import Theme, colors
from regimescope.monitor.ui.security import allowed_hosts, is_loopback

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8501
Option = str | int | bool | list[str]


class ServeError(RegimescopeError):
    """The server cannot start as asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `regimescope serve`; a flag beats the environment.

    Raises ServeError when others could command the runs without a token.
    """

    root: Path
    "Folder whose run folders are watched; created if missing."
    host: str = DEFAULT_HOST
    "Address to listen on."
    port: int = DEFAULT_PORT
    "0 = any free one."
    read_only: bool = False
    "No command leaves this server."
    control_token: str | None = None
    "Asked before a command; needed when host is not a loopback address and commands are on."
    actor: str | None = None
    "Who commands are by; None = the user of the operating system."
    open_browser: bool = False
    "Show the first page in the default browser once the server is up."

    def __post_init__(self) -> None:
        if not (is_loopback(self.host) or self.read_only or self.control_token):
            raise ServeError(
                f"host {self.host} can be reached by others, who could then command the runs: set "
                "REGIMESCOPE_CONTROL_TOKEN or --control-token-file, or start with --read-only"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """From REGIMESCOPE_ROOT, _HOST, _PORT, _READ_ONLY, _CONTROL_TOKEN and _ACTOR. Raises ServeError."""
        env = os.environ if environ is None else environ
        return cls(
            root=Path(env.get("REGIMESCOPE_ROOT") or "runs"),
            host=env.get("REGIMESCOPE_HOST") or DEFAULT_HOST,
            port=parse_port(env.get("REGIMESCOPE_PORT") or str(DEFAULT_PORT), "REGIMESCOPE_PORT"),
            read_only=parse_flag(env.get("REGIMESCOPE_READ_ONLY") or "0", "REGIMESCOPE_READ_ONLY"),
            control_token=env.get("REGIMESCOPE_CONTROL_TOKEN") or None,
            actor=env.get("REGIMESCOPE_ACTOR") or None,
        )


def parse_port(text: str, name: str) -> int:
    """A port 0..65535; the error names the option."""
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    raise ServeError(f"{name} {text!r}: want a port number from 0 (any free one) to 65535")


def parse_flag(text: str, name: str) -> bool:
    """1 or 0, also as words; the error names the option."""
    if text.lower() in ("0", "false", "no", "off"):
        return False
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    raise ServeError(f"{name} {text!r}: want 1 or 0")


def server_config(settings: Settings | None = None) -> dict[str, Option]:
    """Streamlit's options by dotted name; without settings those of a server on loopback."""
    host = settings.host if settings else DEFAULT_HOST
    options: dict[str, Option] = {
        "server.address": host,
        "server.port": settings.port if settings else DEFAULT_PORT,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.allowedHosts": allowed_hosts(host),
        "runner.postScriptGC": False,  # a full collection per redraw of a fragment, half of the server's CPU
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.hideWelcomeMessage": True,
    }
    return options | _theme("light") | _theme("dark")


def _theme(theme: Theme) -> dict[str, Option]:
    """One of the two themes; the browser's preference picks it.

    Streamlit's colour names take the palette's tones, so that badges match charts.
    """
    palette = colors(theme)
    tones = {"green": "ok", "orange": "watch", "red": "critical", "blue": "info", "gray": "stale"}
    values: dict[str, Option] = {
        "primaryColor": palette["info"],
        "backgroundColor": palette["page"],
        "secondaryBackgroundColor": palette["panel"],
        "textColor": palette["ink"],
        "borderColor": palette["rule"],
        "chartCategoricalColors": [palette[name] for name in BUCKETS],
    }
    for color, tone in tones.items():
        values |= {f"{color}Color": palette[tone], f"{color}TextColor": palette[tone]}
    return {f"theme.{theme}.{name}": value for name, value in values.items()}
