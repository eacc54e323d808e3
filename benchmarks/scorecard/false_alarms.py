"""The false alarms that an alert's card tells, from the scorecard: `python -m benchmarks.scorecard.false_alarms`.

Reads docs/scorecard.md, the one source, and writes monitor/ui/false_alarms.toml, which is in the wheel. Run it after a
new scorecard; a test holds the two equal. Data sets on which the rules were tuned are left out: nothing there is held
out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "scorecard.md"
TARGET = REPOSITORY / "monitor" / "ui" / "false_alarms.toml"
SETS = {
    "Fresh lab runs: ": ("real", "lab runs of fresh seeds"),
    "Public logs": ("real", "public logs"),
    "Generated runs": ("generated", "generated runs"),
}
"Beginning of a heading of the scorecard to kind and name."
_HEAD = """\
# False alarms of each signature with all columns, on runs on which no threshold was chosen.
# Written by `python -m benchmarks.scorecard.false_alarms` from docs/scorecard.md.
"""


def main() -> None:
    """Write the file."""
    TARGET.write_text(toml_of(PAGE.read_text("utf-8")), "utf-8")


def toml_of(page: str) -> str:
    """The text of the data file for this scorecard."""
    return _HEAD + "".join(_set(page, heading, *names) for heading, names in SETS.items())


def _set(page: str, heading: str, kind: str, name: str) -> str:
    found = re.search(rf"^## {heading}.*$", page, re.M)
    if found is None:
        raise SystemExit(f"{PAGE}: no part {heading!r}")
    part = page[found.end() :].split("\n## ")[0]
    first, _, rest = part.partition("**All columns**")
    healthy = re.search(r"(\d+) healthy \(([\d,]+) rows\)", first)
    if healthy is None:
        raise SystemExit(f"{PAGE}: no healthy runs under {heading}")
    lacks = re.search(r"No run has (.+?)\. ", first)
    without = [f'"{metric}"' for metric in lacks[1].split(", ")] if lacks else []
    said = re.findall(r"^false alarm: .*, step \d+: (.*)$", rest.split("**Log columns only**")[0], re.M)
    counts = Counter(found for line in said for found in re.findall(r"(\w+) (?:warning|critical)", line))
    warnings = ", ".join(f"{signature} = {count}" for signature, count in sorted(counts.items()))
    lines = [
        "[[set]]",
        f'kind = "{kind}"',
        f'name = "{name}"',
        f"runs = {healthy[1]}",
        f"steps = {healthy[2].replace(',', '_')}",
        f"without = [{', '.join(without)}]",
        f"warnings = {{ {warnings} }}" if warnings else "warnings = {}",
    ]
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
