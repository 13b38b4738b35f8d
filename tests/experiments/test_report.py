import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from adaquantfl.experiments.figures import figure
from adaquantfl.experiments.records import find_runs, load_run
from adaquantfl.experiments.report import write_report

MakeRun = Callable[..., Path]


class Page(HTMLParser):
    """Just enough of a reader: the tags with their attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(comparison: Path) -> str:
    return write_report(find_runs([comparison]), comparison / "page.html").read_text(encoding="utf-8")


def test_the_page_asks_nothing_of_the_network(page: str) -> None:
    assert "http" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "@import" not in page
    assert not Page(page).all("script")


def test_figures_have_words_and_tables_have_headers(page: str) -> None:
    parsed = Page(page)
    drawings = parsed.all("svg")
    assert len(drawings) == 4
    assert all(svg["role"] == "img" and "AdaQuantFL ends at" in (svg["aria-label"] or "") for svg in drawings)
    assert len(parsed.all("table")) == len(parsed.all("caption")) == 3
    assert all(header["scope"] in ("col", "row") for header in parsed.all("th"))


def test_ids_are_unique_and_references_inside_figures_resolve(page: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


def test_runs_over_links_have_a_figure_of_time(make_run: MakeRun, page: str) -> None:
    timed = write_report([load_run(make_run("run", seconds_a_round=30.0))], make_run("other")).read_text()
    assert 'id="figure-time"' in timed
    assert "after 30.0 min" in timed
    assert "figure-time" not in page


def test_each_run_has_its_command_configuration_and_versions(page: str) -> None:
    assert page.count("<details>") == 10
    assert "adaquantfl run 4bit/seed-1/config.toml" in page
    assert "<dt>numpy</dt><dd>2.1.0</dd>" in page
    assert "<dt>partition</dt><dd>iid</dd>" in page


def test_the_page_follows_the_dark_theme(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "var(--d55e00, #d55e00)" in page
    assert "--d55e00: #" in page


def test_text_from_a_run_directory_is_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    runs = [load_run(make_run("a b", losses=[1.0, 0.4], dataset=evil, model="a&b", method_note='"><img src=x>'))]
    runs.append(load_run(make_run("c", "<b>$x$", losses=[], dataset=evil, model="a&b")))
    text = write_report(runs, tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text
    assert "a&amp;b" in text
    assert "adaquantfl run &#x27;../a b/config.toml&#x27;" in text


def test_a_partition_picture_is_inlined_once(comparison: Path, tmp_path: Path) -> None:
    runs = find_runs([shutil.copytree(comparison, tmp_path / "copy")])
    figure("loss", runs, size=(2, 2)).savefig(runs[0].path / "partition.png")
    data = (runs[0].path / "partition.png").read_bytes()
    (runs[2].path / "partition.png").write_bytes(data)
    (runs[4].path / "partition.png").write_bytes(b"not a picture")
    images = Page(write_report(runs, tmp_path).read_text(encoding="utf-8")).all("img")
    assert len(images) == 1
    assert (images[0]["src"] or "").startswith("data:image/png;base64,")
    assert (images[0]["alt"] or "").endswith("AdaQuantFL seed 0, 2-bit seed 0")


def test_an_unfinished_run_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    run = load_run(make_run("run", losses=[1.0, 0.5], finished=False))
    text = write_report([run], tmp_path).read_text(encoding="utf-8")
    assert ", unfinished" in text
    assert "2 so far" in text


def test_the_same_runs_give_the_same_page(comparison: Path, page: str) -> None:
    again = write_report(find_runs([comparison]), comparison / "again.html")
    assert again.read_text(encoding="utf-8") == page
