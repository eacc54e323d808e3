"""The runbook of a signature as the pages show it: docs/signatures/NAME.md, which the wheel carries too (`runbooks`).

runbook("length_collapse")    # Markdown of our own, without links: their targets are files of the repository
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "runbooks"


@cache
def runbook(signature: str) -> str:
    """Empty where the signature has none. A name is looked up among the files, never made into a path."""
    path = {file.stem: file for file in FOLDER.glob("*.md")}.get(signature)
    if path is None:
        return ""
    body = re.sub(r"^# .*\n+", "", path.read_text("utf-8"))
    return re.sub(r"^## ", "#### ", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", body), flags=re.MULTILINE)
