"""Pages, docstrings and messages in plain words: short sentences, no idioms that readers stumble over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import voice


@pytest.mark.parametrize("page", voice.pages(), ids=lambda page: page.relative_to(voice.ROOT).as_posix())
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert list(voice.findings(page.read_text(encoding="utf-8"))) == []


def test_messages_and_docstrings_are_in_plain_words() -> None:
    found = {path: list(voice.in_code(path.read_text(encoding="utf-8"))) for path in voice.modules()}
    assert len(found) > 100
    assert {path.name: texts for path, texts in found.items() if texts} == {}


def test_the_readme_is_checked() -> None:
    assert voice.ROOT / "README.md" in voice.pages()


def test_a_long_sentence_is_flagged_with_its_line() -> None:
    short, long = "One " * 25, "One " * 26
    (found,) = voice.findings(f"# Title\n\n{short.strip()}.\n\n- {long.strip()}.\n")
    assert found.startswith("5: 26 words: ")


def test_sentences_are_counted_one_by_one_over_lines() -> None:
    half = ("one " * 13).strip()
    assert list(voice.findings(f"{half}.\nOne {half}.")) == []
    assert len(list(voice.findings(f"{half}\none {half}."))) == 1


@pytest.mark.parametrize("words", ["3 bits an element", "all but for one", "The run goes on.", "a table beside it"])
def test_an_idiom_is_flagged_in_text_and_in_tables_written_by_hand(words: str) -> None:
    assert len(list(voice.findings(words))) == 1
    assert len(list(voice.findings(f"| {words} | x |"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "```python\n# 3 bits an element\n```",
        "A block:\n\n    run  # goes on",
        "<!-- t: made by a script -->\n\n| bits an element |\n\nIt goes on.\n\n<!-- /t -->",
        "[a page](beside.md) and `goes on`",
        "| " + "word " * 30 + "|",
    ],
)
def test_code_generated_tables_and_targets_of_links_are_not_read(text: str) -> None:
    assert list(voice.findings(text)) == []


@pytest.mark.parametrize(("name", "count"), [("public", 1), ("_private", 0)])
def test_a_long_sentence_in_a_docstring_is_flagged_where_the_name_is_public(name: str, count: int) -> None:
    code = f'def {name}():\n    """Short.\n\n    {"word " * 26}end.\n\n    >>> {"word " * 30}\n    """\n'
    assert len(list(voice.in_code(code))) == count


def test_an_idiom_in_a_docstring_is_flagged_with_its_line() -> None:
    code = 'class _A:\n    def b(self):\n        """It goes on."""\n'
    assert list(voice.in_code(code)) == ['3: in the docstring: "goes on": resume, continue']


def test_the_command_fails_with_the_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It goes on.\n")
    done = subprocess.run([sys.executable, voice.__file__, page], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, f'{page}:1: "goes on": resume, continue\n')
