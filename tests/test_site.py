"""The documentation site: it builds without a warning, and reading it asks no other host for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest

pytest.importorskip("zensical")
pytest.importorskip("websockets")

import doctest_blocks
import site_pages

from adaquantfl.cli import build_parser
from support import browser
from support.browser import Tab

ROOT = Path(__file__).parents[1]
PROGRAM = browser.find()
pytestmark = pytest.mark.slow  # it builds the site and starts a browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    site_pages.build(folder)  # a warning ends it
    return folder


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    if PROGRAM is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is installed")
    with browser.started(PROGRAM, tmp_path / "profile") as port:
        tab = Tab(port)
        tab.resize(1280, 800)
        yield tab
        tab.close()


class _Loaded(HTMLParser):
    """What a browser fetches by itself for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag != "a" and not (tag == "link" and given.get("rel") in ("canonical", "next", "prev")):
            self.addresses += [
                given[name] or "" for name in ("src", "srcset", "href", "data", "poster") if name in given
            ]


def test_no_page_names_a_file_on_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 16
    for page in pages:
        reader = _Loaded()
        reader.feed(page.read_text())
        outside = [address for address in reader.addresses if re.match(r"([a-z]+:)?//", address)]
        assert outside == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text()), style.name


def test_what_is_generated_is_there(site: Path) -> None:
    commands = (site / "reference" / "python.html").read_text()
    for command, _ in site_pages.commands(build_parser()):
        assert f"{command.prog}<" in commands
        for name in (name for action in command._actions for name in action.option_strings):
            assert name in commands, f"{command.prog} {name}"
    core = (site / "reference" / "python.html").read_text()
    assert 'id="adaquantfl.Accumulator.add"' in core
    assert "A refused frame" in core
    assert (site / site_pages.REPORT).read_text() == site_pages.report(ROOT / "evidence" / "records" / "demo")


def test_links_out_of_docs_lead_into_the_repository_or_become_a_name() -> None:
    text = "[one](../../examples/one.py#end), [a page](../theory.md#top)"
    how_to = PurePosixPath("how-to")
    assert site_pages.without_links_out(text, how_to, None) == "`examples/one.py`, [a page](../theory.md#top)"
    there = "[one](https://host/us/it/blob/main/examples/one.py#end), [a page](../theory.md#top)"
    assert site_pages.without_links_out(text, how_to, "https://host/us/it/") == there


def test_examples_in_docstrings_are_shown_as_code() -> None:
    text = "Adds up.\n\n>>> 1 + 1\n2\n\nThat is all."
    assert doctest_blocks.fenced(text) == "Adds up.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThat is all."
    assert doctest_blocks.fenced(">>> 1\n1") == "```pycon\n>>> 1\n1\n```"


def test_it_is_read_and_searched_from_disk_without_a_request(site: Path, tab: Tab) -> None:
    for name in ("index.html", "own-task.html", "reference/python.html"):
        tab.open((site / name).as_uri())
    tab.do("document.querySelector('.md-search__button').click()")
    roots = "[...document.querySelectorAll('*')].map(node => node.shadowRoot)"
    window = f"{roots}.find(root => root?.querySelector('input'))"
    tab.until(f"{window} !== undefined")
    tab.do(f"{window}.querySelector('input').focus()")
    for letter in "entropy":
        tab.press(letter)
    tab.until(f"[...{window}.querySelectorAll('a')].some(link => link.href.includes('theory.html'))")
    assert [address for address in tab.requests if not address.startswith(("file:", "data:", "about:", "blob:"))] == []
    assert tab.complaints == []
