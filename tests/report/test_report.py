import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from adaquantfl.report.page import write_report
from adaquantfl.runs.records import RunRecord, find_runs, load_run

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
    assert "://" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "@import" not in page
    assert "url(" not in page
    policy = next(meta for meta in Page(page).all("meta") if meta.get("http-equiv"))["content"] or ""
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_the_policy_lets_only_the_pages_own_script_run(page: str) -> None:
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page
    assert [tag.get("type") for tag in Page(page).all("script")] == ["application/json", None]


def test_tables_have_captions_and_headers(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.all("table")) == len(parsed.all("caption")) == 3
    assert all(header["scope"] in ("col", "row") for header in parsed.all("th"))


def test_each_run_has_its_command_configuration_and_versions(page: str) -> None:
    assert page.count("<details>") == 10 + 1  # a run each, and the table behind a plot
    assert "adaquantfl run 4bit/seed-1/config.toml" in page
    assert "<dt>numpy</dt><dd>2.1.0</dd>" in page
    assert "<dt>partition</dt><dd>iid</dd>" in page


def test_text_from_a_run_directory_is_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    runs = [load_run(make_run("a b", losses=[1.0, 0.4], dataset=evil, model="a&b", method_note='"><img src=x>'))]
    runs.append(load_run(make_run("c", "<b>$x$", losses=[], dataset=evil, model="a&b")))
    text = write_report(runs, tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert text.count("<script") == 2  # the page's own
    assert "<img" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text
    assert "a&amp;b" in text
    assert "adaquantfl run &#x27;../a b/config.toml&#x27;" in text


def test_runs_that_differ_in_a_setting_are_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [load_run(make_run(f"s0-{s0}", s0=s0)) for s0 in (1, 2)]
    text = write_report(runs, tmp_path).read_text(encoding="utf-8")
    assert all(f"<summary>AdaQuantFL, s0 {s0}, seed 0<" in text for s0 in (1, 2))
    assert all(f'<th scope="row">AdaQuantFL, s0 {s0}, seed 0</th>' in text for s0 in (1, 2))


def chips(runs: list[RunRecord], folder: Path) -> list[str]:
    text = write_report(runs, folder).read_text(encoding="utf-8")
    return re.findall(r"<li[^>]*>([^<]+)</li>", text[text.index('<ul class="chips"') :])


def test_the_settings_of_the_runs_and_all_that_differs_are_above_the_plots(make_run: MakeRun, tmp_path: Path) -> None:
    shared = {"evaluate_every": 5, "rounds": 100, "clients_per_round": 0}
    same = [load_run(make_run(f"same-{seed}", seed=seed, **shared)) for seed in range(2)]
    found = chips(same, tmp_path)
    assert {"evaluate_every: 5", "rounds: 100", "eta: 0.1", "seeds: 2"} <= set(found)
    assert not [chip for chip in found if chip.startswith("clients_per_round")]
    other = load_run(make_run("other", "2bit", **{**shared, "evaluate_every": 10, "scope": "whole"}))
    found = chips([*same, other], tmp_path)
    assert {"evaluate_every: 5 | 10", "scope: tensor | whole"} <= set(found)


def test_an_unfinished_run_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    run = load_run(make_run("run", losses=[1.0, 0.5], finished=False))
    text = write_report([run], tmp_path).read_text(encoding="utf-8")
    assert ", unfinished" in text
    assert "2 so far" in text


def test_the_same_runs_give_the_same_page(comparison: Path, page: str) -> None:
    again = write_report(find_runs([comparison]), comparison / "again.html")
    assert again.read_text(encoding="utf-8") == page
