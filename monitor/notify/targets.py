"""Whom to tell: `ROOT/notify.toml`, and the URLs of $REGIMESCOPE_NOTIFY.

    link = "https://monitor.example"     # what people open; default: the address of the server
    [[target]]
    name = "oncall"
    url_env = "ONCALL_URL"               # or url = "mailto://..."; any URL that apprise takes
    severity = "warning"                 # least: info, warning or critical
    on = ["open", "escalate", "resolve"]
    quiet = "22:00-07:00"                # local time of the server; a critical alert goes out all the same
    interval = 60                        # least seconds between two messages; a critical alert does not wait

Strict: an unknown key names the nearest known one. URLs are secrets: no message here contains one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from regimescope.monitor.errors import NotifyFileError

KINDS = ("open", "escalate", "resolve")
SEVERITIES = ("info", "warning", "critical")
MAX_TARGETS = 32
_KEYS = ("name", "url", "url_env", "severity", "on", "quiet", "interval")
_DAY_MIN = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One place that takes notices."""

    name: str
    "Unique; stands in the segments and on the pages."
    url: str = field(repr=False)
    "Of apprise; a secret."
    severity: str = "warning"
    "Least severity that is told."
    on: tuple[str, ...] = KINDS
    quiet: tuple[int, int] | None = None
    "Minutes of the day, from and to; may pass midnight."
    interval_s: float = 0.0
    "Least seconds between two messages."

    def is_quiet(self, minute: int) -> bool:
        """Whether this minute of the day lies in the quiet hours."""
        if self.quiet is None:
            return False
        start, end = self.quiet
        return start <= minute < end if start < end else minute >= start or minute < end


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the file and the environment ask for."""

    targets: tuple[Target, ...] = ()
    link: str = ""
    "Base of the links; empty = the address of the server."


def notify_path(root: Path) -> Path:
    """Where the targets of a root belong."""
    return root / "notify.toml"


def load_plan(root: Path, environ: Mapping[str, str] | None = None) -> Plan:
    """Targets of the file, then those of the environment. Raises NotifyFileError."""
    env = os.environ if environ is None else environ
    path = notify_path(root)
    table = _read(path)
    _known(table, ("link", "target"), str(path))
    rows = table.get("target", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NotifyFileError(f"{path}: target: write each one as [[target]]")
    targets = [_target(row, f"{path}: target {i}", env) for i, row in enumerate(rows, 1)]
    urls = env.get("REGIMESCOPE_NOTIFY", "").split()
    targets += [Target(name=f"env-{i}", url=url) for i, url in enumerate(urls, 1)]
    names = [target.name for target in targets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise NotifyFileError(f"{path}: two targets are called {twice!r}: a name tells whom a notice went to")
    if len(targets) > MAX_TARGETS:
        raise NotifyFileError(f"{path}: {len(targets)} targets: at most {MAX_TARGETS}, each has a thread of its own")
    return Plan(targets=tuple(targets), link=_link(table.get("link", ""), str(path)))


def _read(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        raise NotifyFileError(f"{path} is a link, which is not followed: put the file itself there")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NotifyFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NotifyFileError(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise NotifyFileError(f"{path}: not valid TOML: {error}") from None


def _target(row: Mapping[str, Any], where: str, env: Mapping[str, str]) -> Target:
    _known(row, _KEYS, where)
    name = row.get("name")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 40:
        raise NotifyFileError(f"{where}: name: want a short text that tells people who is meant")
    where = f"{where} ({name})"
    quiet, severity = row.get("quiet"), row.get("severity", "warning")
    if severity not in SEVERITIES:
        raise NotifyFileError(f"{where}: severity: want one of {', '.join(SEVERITIES)}")
    on = row.get("on", list(KINDS))
    if not isinstance(on, list) or not on or not set(map(str, on)) <= set(KINDS):
        raise NotifyFileError(f"{where}: on: want a list of {', '.join(KINDS)}")
    interval = row.get("interval", 0)
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 <= interval <= 86_400:
        raise NotifyFileError(f"{where}: interval: want seconds from 0 to 86400")
    return Target(
        name=name,
        url=_url(row, where, env),
        severity=severity,
        on=tuple(kind for kind in KINDS if kind in on),
        quiet=None if quiet is None else _hours(quiet, where),
        interval_s=float(interval),
    )


def _url(row: Mapping[str, Any], where: str, env: Mapping[str, str]) -> str:
    url, variable = row.get("url"), row.get("url_env")
    if (url is None) == (variable is None):
        raise NotifyFileError(f"{where}: give either url, or url_env: the name of a variable that holds it")
    if url is None:
        url = env.get(str(variable))
        if not url:
            raise NotifyFileError(f"{where}: url_env: the variable {variable} of the environment is not set")
    if not isinstance(url, str) or "://" not in url:
        raise NotifyFileError(f"{where}: its URL is no URL: want something like mailto://user:password@host")
    return url.strip()


def _hours(text: object, where: str) -> tuple[int, int]:
    ends = [_minute(part) for part in str(text).split("-")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] == ends[1]:
        raise NotifyFileError(f'{where}: quiet: want two times of the day, such as "22:00-07:00"')
    return ends[0], ends[1]


def _minute(text: str) -> int | None:
    hour, colon, minute = text.strip().partition(":")
    if not (colon and hour.isdecimal() and minute.isdecimal() and len(minute) == 2):
        return None
    found = 60 * int(hour) + int(minute)
    return found if int(minute) < 60 and found < _DAY_MIN else None


def _link(link: object, where: str) -> str:
    if not isinstance(link, str) or (link and not link.startswith(("http://", "https://"))):
        raise NotifyFileError(f"{where}: link: want the address of the pages, such as https://monitor.example")
    return link.rstrip("/")


def _known(row: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in known:
            nearest = get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise NotifyFileError(f"{where}: unknown key {key!r}; did you mean {nearest!r}?")
