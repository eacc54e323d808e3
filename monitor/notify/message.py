"""What a notice says: at most what a person needs at night. Plain text; never a prompt or a response.

Names that a run brings (its path, its slices) are cut, lose control characters, and cannot call a group of a chat.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from urllib.parse import urlencode

from regimescope.monitor.query import AlertRow
from regimescope.monitor.ui.texts import bound_label, signature_text, span, weight

_LONG = 80
"Letters of a name that a message shows."
KINDS_OF_APPRISE = {"info": "info", "warning": "warning", "critical": "failure"}
_BREAKS = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "@\u2060"})
"What chats read as markup or as a call to everybody."


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known beside the alert when its notice falls due."""

    run: str
    "Path below the root."
    verdict: str
    "Word of the page's header."
    bound: tuple[str, float | None, float] | None
    "Name, weight in force, weight proposed."
    checkpoint: int | None
    "Step of the last good one."
    link: str
    "Base of the links, without a slash at the end."


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Ready to go."""

    title: str
    body: str
    kind: str
    "info, success, warning or failure, as apprise calls them."

    def delayed(self, seconds: float) -> Message:
        """The same, saying that it comes late."""
        line = f"This notice is {span(seconds)} late: quiet hours, least interval, or the target did not answer."
        return Message(title=self.title, body=f"{self.body}\n{line}", kind=self.kind)


def plain(text: str) -> str:
    """A text of a run as one short line that no service takes for anything but text."""
    one_line = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text)
    cut = one_line if len(one_line) <= _LONG else f"{one_line[:_LONG]}…"
    return cut.translate(_BREAKS)


def message(kind: str, alert: AlertRow, around: Circumstances) -> Message:
    """The notice of this kind."""
    name = signature_text(alert.signature).title
    words = {"open": alert.severity, "escalate": f"now {alert.severity}", "resolve": "resolved"}
    lines = [
        f"Run: {plain(around.run)}",
        f"Verdict: {around.verdict}",
        f"Alert: {name} ({alert.signature}), {alert.severity}, {alert.state}",
        *([f"Slice: {plain(alert.slice)}"] if alert.slice else []),
        f"Onset step {alert.step_onset}, detected step {alert.step_detected}, last seen step {alert.step_last}",
        *([f"Driver: {alert.driver}"] if alert.driver else []),
    ]
    if kind != "resolve":
        lines += _advice(around)
    lines.append(f"{around.link}/alerts?{urlencode({'run': around.run, 'alert': alert.alert_id})}")
    return Message(
        title=f"{words[kind].upper()}: {name.lower()} in {plain(around.run)}",
        body="\n".join(lines),
        kind="success" if kind == "resolve" else KINDS_OF_APPRISE[alert.severity],
    )


def test_message(link: str) -> Message:
    """What "Send test" sends."""
    body = f"A test of the notices of regimescope. Alerts of runs would be told here.\n{link}"
    return Message(title="regimescope: test", body=body, kind="info")


def _advice(around: Circumstances) -> list[str]:
    lines = []
    if around.bound is not None:
        name, old, new = around.bound
        lines.append(f"Move {bound_label(name)}: {'?' if old is None else weight(old)} -> {weight(new)}")
    if around.checkpoint is not None:
        lines.append(f"Last good checkpoint: step {around.checkpoint}")
    return lines
