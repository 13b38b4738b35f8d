"""Flag long sentences and unclear idioms in pages, docstrings and messages.

    python scripts/voice.py [FILE ...]

Without files it reads README.md, docs/, the other pages for users and contributors, and the package. It exits with 1 if
it finds anything. Code, tables that a script writes and the targets of links are skipped; tables written by hand are
read for idioms only. Messages are all texts in the code except docstrings: errors, help and log lines. Of docstrings,
those of modules and public names are read for long sentences too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 25

# A small letter starts a sentence too, as in a file's name, but not after an abbreviation such as i.i.d.
SENTENCES = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"(*_\[`A-Z0-9])|(?<=\w\w[.!?])\s+(?=[a-z])")
_UNITS = "bits?|bytes?|kB|MB|GB|Mb|s|ms|seconds?|lines?|times|process|requests?|steps|frames?|Mbit"
_EACH = "element|client|round|update|message|second|run|host|tensor|model|number|weight|process|seed"
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
IDIOMS = {
    rf"\b(?:{_UNITS}) an? (?:{_EACH})\b": "per",
    r"\bbut for\b": "except",
    r"\bthe way (?:down|up)\b": "downlink, uplink",
    r"\b(?:go|goes|going|went) on\b": "resume, continue",
    r"\bso many\b": "the number",
    r"\bwhat it does is\b": "say what it does",
    r"\bworth a thought\b": "say whether it matters",
    r"\bin the place of\b": "instead of",
    r"\bin place of\b": "instead of",
    r"\bbeside\b": "next to, with",
    r"\bwhat is left\b(?! out)": "the rest",
    r"\banew\b": "again",
    r"\bfor ever\b": "without a limit",
    r"\bwithout a word\b": "silently",
    r"\bis the matter\b|\bhalf of the matter\b": "say what matters",
    r"\bwhoever\b": "a process that, the method that",
    r"\bleads? on\b": "leads from the old model to the new one",
    r"\bby your hand\b": "manually",
}


def findings(text: str) -> Iterator[str]:
    """What is to be rewritten on a page: the line, the reason and the words.

    >>> list(findings("It takes 3 bits an element."))
    ['1: "bits an element": per']
    """
    for line, kind, words in parts(text):
        yield from (f"{line}: {found}" for found in idioms(words))
        for sentence in SENTENCES.split(words) if kind == "prose" else ():
            count = len(re.findall(r"\S*\w\S*", sentence))
            if count > MOST_WORDS:
                yield f"{line}: {count} words: {sentence[:60]} ..."


def idioms(words: str) -> Iterator[str]:
    """The idioms in some words, each with what to write instead."""
    for idiom, better in IDIOMS.items():
        for found in re.finditer(idiom, words, re.IGNORECASE):
            yield f'"{found[0]}": {better}'


def in_code(code: str) -> Iterator[str]:
    """What is to be rewritten in the texts of a Python file.

    >>> list(in_code("'It goes on.'; print(f'{run} goes on')"))
    ['1: "goes on": resume, continue']
    """
    tree = ast.parse(code)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield from (f"{node.lineno}: {found}" for found in idioms(node.value))
    yield from _in_docstrings(tree, public=True)


def _in_docstrings(node: ast.AST, public: bool) -> Iterator[str]:
    """The same in the docstrings of a module, a class or a function and all inside it."""
    body = getattr(node, "body", [])
    clean = not isinstance(node, ast.Module)  # where all of a module's text is an indented block, it would not be one
    if isinstance(node, Documented) and (text := ast.get_docstring(node, clean)) is not None:
        read = findings if public else idioms
        prose = re.sub(r"^(>>>|\.\.\.) .*?(?=^$|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)
        yield from (f"{body[0].lineno}: in the docstring: {found}" for found in read(prose))
    for child in body if isinstance(body, list) else ():
        if isinstance(child, Documented):
            yield from _in_docstrings(child, public and not child.name.startswith("_"))


def parts(text: str) -> Iterator[tuple[int, str, str]]:
    """Paragraphs, list items, headings and rows of tables, each with its line, its kind and its words."""
    start, gathered, was_blank = 0, "", True
    for number, line in enumerate([*_without_code(text).splitlines(), ""], start=1):
        words = line.strip()
        row, item = words.startswith("|"), bool(re.match(r"([-*]|\d+\.) |#+ |> ", words))
        if gathered and (not words or row or item):
            yield start, "prose", _plain(gathered)
            gathered = ""
        indented = line.startswith("    ") and not item and not gathered and was_blank
        if row:
            yield number, "row", _plain(words)
        elif words and not indented:
            start, gathered = (number, words) if not gathered else (start, f"{gathered} {words}")
        was_blank = not words or (indented and was_blank)


def _without_code(text: str) -> str:
    """The page without front matter, fenced code, what scripts write, and comments; every line keeps its number."""
    blocks = (
        r"\A---\n.*?^---$",
        r"^ *```.*?^ *```$",
        r"<!-- ([\w-]+): [^>]*-->(?:(?!<!-- ).)*?<!-- /\1 -->",
        r"<!--.*?-->",
        r"^!\[.*?\]\(\S*\)$",
        r"^::: .*$",
    )
    for block in blocks:
        text = re.sub(block, lambda found: "\n" * found[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return text


def _plain(words: str) -> str:
    """Words without the targets of links; a piece of code counts as one word."""
    words = re.sub(r"`[^`]*`", "CODE", words)
    words = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", words)
    words = re.sub(r"</?\w+[^>]*>", "", words)
    return re.sub(r"^([-*]|\d+\.|#+|>) ", "", words)


def pages() -> list[Path]:
    """What users and contributors read."""
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
    return [
        *(ROOT / name for name in names),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("examples/*/*.md")),
    ]


def modules() -> list[Path]:
    """The files of the package."""
    return sorted((ROOT / "src").rglob("*.py"))


def main() -> int:
    count = 0
    for path in [Path(name) for name in sys.argv[1:]] or [*pages(), *modules()]:
        read = in_code if path.suffix == ".py" else findings
        for finding in read(path.read_text(encoding="utf-8")):
            print(f"{path}:{finding}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
