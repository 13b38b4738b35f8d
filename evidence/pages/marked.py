"""Text that a command writes into a page, between `<!-- name: how it is made -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fill(page: str, name: str, text: str) -> str:
    """`page` with `text` between the marks of `name`."""
    pattern = re.compile(rf"(<!-- {name}: [^>]*-->).*?(<!-- /{name} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda marks: f"{marks[1]}\n\n{text}\n\n{marks[2]}", page)
    if count != 1:
        raise ValueError(
            f"The page has {count} places for {name}, expected one: <!-- {name}: ... --> <!-- /{name} -->."
        )
    return filled


def written(page: str, texts: Mapping[str, str]) -> str:
    """`page` with each text between the marks of its name."""
    for name, text in texts.items():
        page = fill(page, name, text)
    return page


def write(page: Path, texts: Mapping[str, str]) -> None:
    """The same in a file."""
    page.write_text(written(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
