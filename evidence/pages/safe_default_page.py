"""Writes the table of docs/theory.md about the default from safe-default."""

from __future__ import annotations

from pathlib import Path

from evidence.pages.marked import ROOT, write
from evidence.studies import safe_default

PAGE = ROOT / "docs" / "theory.md"


def blocks(records: Path = ROOT / safe_default.RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    return {"safe-default": safe_default.table(safe_default.rows(records))}


if __name__ == "__main__":
    write(PAGE, blocks())
