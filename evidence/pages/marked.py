"""Text that `make results` writes into a page, between `<!-- name: how it is made -->` and `<!-- /name -->`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "evidence" / "records"


def read(name: str) -> dict[str, Any]:
    """Return a record by its path below evidence/records, without its ending."""
    found: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def fill(page: str, name: str, text: str) -> str:
    """Return `page` with `text` between the marks of `name`."""
    pattern = re.compile(rf"(<!-- {name}: [^>]*-->).*?(<!-- /{name} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda marks: f"{marks[1]}\n\n{text}\n\n{marks[2]}", page)
    if count != 1:
        raise ValueError(
            f"The page has {count} places for {name}; expected one: <!-- {name}: ... --> <!-- /{name} -->."
        )
    return filled


def verdict(met: bool) -> str:
    """Say whether an aim was met."""
    return "met" if met else "**missed**"
