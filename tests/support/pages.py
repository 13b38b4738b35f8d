"""The pages of docs/ and README.md as a reader meets them: fenced blocks with what stands above them, and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.installed import installed

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = (ROOT / "README.md", *DOCS)
OTHERS = [*sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "evidence").rglob("*.md"))]

_FENCE = re.compile(r"(?:<!-- ([^\n]*) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4,}\S.*\n(?:\n(?= {4}))?)+", re.MULTILINE)
PROGRAMS = ("adaquantfl", "make")
_NAMED = re.compile(rf"\b({'|'.join(PROGRAMS)}) ")


@dataclass(frozen=True)
class Block:
    """A fenced block. `mark` is the comment above it: how it is to be taken."""

    page: str
    line: int
    mark: str
    language: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def left_out(self) -> bool:
        """It is not run: it says so, it is a part of a file that has its own test, or it `needs: ` what is missing."""
        needed = self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else ""
        return self.mark.startswith(("not run: ", "excerpt: ")) or bool(needed and not installed(needed))


_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
TOLERANCE = 0.05  # a training's last digits differ between processors


def differs(printed: str, shown: str) -> str:
    """Say where two texts differ: words must be equal, and numbers within TOLERANCE or one unit of the last digit.

    >>> differs("loss 0.412, 1,003 bytes", "loss 0.41, 1,000 bytes")
    ''
    >>> differs("loss 0.6 after 3", "loss 0.41 after 3")
    '0.6 instead of 0.41'
    """
    words = [_NUMBER.sub("#", text).split() for text in (printed, shown)]
    if words[0] != words[1]:
        return f"{' '.join(words[0])} instead of {' '.join(words[1])}"
    for new, old in zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=True):
        ours, theirs = (float(text.rstrip(".").replace(",", "")) for text in (new, old))
        unit = 10.0 ** -len(old.partition(".")[2].partition("e")[0])
        if abs(ours - theirs) > max(TOLERANCE * abs(theirs), unit if "e" not in old else 0):
            return f"{new} instead of {old}"
    return ""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text()
    return [
        Block(name(page), text.count("\n", 0, found.start(3)) + 1, found[1] or "", found[3], found[4])
        for found in _FENCE.finditer(text)
    ]


def lines(script: str) -> list[list[str]]:
    """A shell script's commands as words: continued lines joined; comments, prompts and variables before them gone.

    >>> lines("$ RANK=0 adaquantfl run \\\\\\n  demo  # the server\\n")
    [['adaquantfl', 'run', 'demo']]
    """
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words = words[1:]
        if words:
            found.append([words[0].removeprefix(".venv/bin/"), *words[1:]])
    return found


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every `adaquantfl` and `make` command that a page shows in a block of its own, with its place."""
    for block in blocks(page):
        if block.language in ("console", "bash"):
            yield from ((block.place, words) for words in lines(block.code) if words[0] in PROGRAMS)
    prose = _without_fences(page)
    for script in _INDENTED.finditer(prose):
        place = f"{name(page)}:{prose.count(chr(10), 0, script.start()) + 1}"
        shown = [line for line in script[0].replace("\\\n", " ").splitlines() if _NAMED.search(line)]
        yield from ((place, words) for line in shown for words in lines(line) if words[0] in PROGRAMS)


def _without_fences(page: Path) -> str:
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
