"""README and docs in plain words: short sentences, no idioms that readers stumble over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import voice


@pytest.mark.parametrize("page", voice.pages(), ids=lambda page: page.relative_to(voice.ROOT).as_posix())
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert list(voice.findings(page.read_text(encoding="utf-8"))) == []


def test_messages_are_in_plain_words() -> None:
    found = {path.name: list(voice.in_messages(path.read_text(encoding="utf-8"))) for path in voice.modules()}
    assert len(found) > 100
    assert {name: idioms for name, idioms in found.items() if idioms} == {}


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


def test_the_command_fails_with_the_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("It goes on.\n")
    done = subprocess.run([sys.executable, voice.__file__, page], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, f'{page}:1: "goes on": resume, continue\n')
