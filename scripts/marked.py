"""Text that a command writes into a page, between `<!-- name: how it is made -->` and `<!-- /name -->`."""

from __future__ import annotations

import re


def fill(page: str, name: str, text: str) -> str:
    """`page` with `text` between the marks of `name`."""
    pattern = re.compile(rf"(<!-- {name}: [^>]*-->).*?(<!-- /{name} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda marks: f"{marks[1]}\n\n{text}\n\n{marks[2]}", page)
    if count != 1:
        raise ValueError(
            f"The page has {count} places for {name}, expected one: <!-- {name}: ... --> <!-- /{name} -->."
        )
    return filled
