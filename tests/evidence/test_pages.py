"""Every page shows its records, and every mark of a page has a generator."""

from __future__ import annotations

import re

import pytest

from evidence.pages import demo, registry
from evidence.pages.marked import ROOT, fill
from support.pages import OTHERS, PAGES


@pytest.mark.parametrize("mark", [mark for mark in registry.MARKS if mark != "round-printed"])  # test_docs.py runs it
def test_the_page_shows_the_record(mark: str) -> None:
    page, function = registry.MARKS[mark]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert fill(text, mark, function()) == text, "run: make results"


def test_every_mark_has_a_generator_and_every_figure_a_page() -> None:
    pages = [*PAGES, *OTHERS]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in pages}
    found = {(mark, page) for page, text in texts.items() for mark in re.findall(r"<!-- /([\w-]+) -->", text)}
    assert found == {(mark, page) for mark, (page, _) in registry.MARKS.items()}
    for name in registry.FIGURES:
        assert (ROOT / "docs" / "figures" / name).is_file()
        assert any(f"figures/{name})" in text for text in texts.values()), name


def test_a_mark_is_filled_once_or_refused() -> None:
    assert fill("<!-- a: x -->old<!-- /a -->", "a", "new") == "<!-- a: x -->\n\nnew\n\n<!-- /a -->"
    with pytest.raises(ValueError, match="0 places for a"):
        fill("nothing", "a", "new")


def test_the_records_are_small() -> None:
    sizes = [path.stat().st_size for path in (ROOT / "evidence" / "records").rglob("*") if path.is_file()]
    assert sum(sizes) < 6_000_000


def test_the_recorded_demo_has_the_methods_that_make_demo_runs() -> None:
    first, second, both = re.findall(r"\$\(DEMO\) (\S+)", (ROOT / "Makefile").read_text())
    assert sorted(f"{first},{second}".split(",")) == sorted(both.split(",")) == sorted(demo.METHODS)
    assert {path.name for path in demo.RECORD.iterdir()} >= set(demo.METHODS)
