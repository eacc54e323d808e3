"""Text of a run in a cell that may end up in a spreadsheet: CSV files, and the tables of the pages, which can be
downloaded as CSV.

    cell("=cmd()")    # "'=cmd()"
"""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"A cell that begins with one of them is run as a formula by spreadsheets."


def cell(text: str) -> str:
    """The same, with an apostrophe where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
