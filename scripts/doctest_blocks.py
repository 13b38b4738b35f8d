"""For mkdocstrings: examples in docstrings stand as `>>>` lines between paragraphs, where Markdown would see quotes.

This puts a fence around each, so that the site shows them as code.
"""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """`text` with every doctest, from its first prompt to the blank line, in a fence."""
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), ""]:
        if inside and not line.strip():
            lines.append("```")
        elif not inside and line.startswith(">>> "):
            lines.append("```pycon")
        inside = bool(line.strip()) and (inside or line.startswith(">>> "))
        lines.append(line)
    return "\n".join(lines[:-1])


class DoctestBlocks(griffe.Extension):
    """Fences the docstrings of all that is documented."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
