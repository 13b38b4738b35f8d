"""Writes the table of docs/theory.md about the default from results/safe-default (`python -m studies.safe_default`)."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # studies/ is not in the wheel

from marked import write  # noqa: E402

from studies import safe_default  # noqa: E402

PAGE = ROOT / "docs" / "theory.md"


def blocks(records: Path = ROOT / safe_default.RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    return {"safe-default": safe_default.table(safe_default.rows(records))}


if __name__ == "__main__":
    write(PAGE, blocks())
