"""docs/results.md and docs/how-to/choose.md say what the records say; `make results` writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evidence.pages import results_page
from evidence.pages.marked import fill, written
from evidence.studies.panels import load_panels

MakeRun = Callable[..., Path]


@pytest.mark.parametrize("name", ["results.md", "how-to/choose.md"])
def test_the_page_is_what_the_records_say(name: str) -> None:
    page = results_page.ROOT / "docs" / name
    text = page.read_text()
    assert text == written(text, results_page.pages()[page]), "run: make results"


def test_every_figure_is_there() -> None:
    for name in results_page.pictures(load_panels(results_page.PAPER)):
        assert (results_page.ROOT / "docs" / results_page.FIGURES / f"{name}.png").is_file(), "run: make results"


def test_the_page_can_be_written_with_any_records(make_run: MakeRun, tmp_path: Path) -> None:
    page = (results_page.ROOT / "docs" / "results.md").read_text()
    written(page, results_page.blocks(load_panels(tmp_path)))
    make_run("fmnist-cnn-iid/adaquant")
    alone = written(page, results_page.blocks(load_panels(tmp_path)))
    assert "60 of 600 rounds" in alone
    assert "figures/figure-3.png" in alone
    assert "figures/figure-2.png" not in alone
    make_run("fmnist-cnn-iid/2bit", "2bit")
    make_run("cifar-resnet18-iid-decay/4bit", "4bit", losses=[2.0])
    found = load_panels(tmp_path)
    assert "**missed**" in written(page, results_page.blocks(found))
    results_page.draw(found, tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == set(results_page.pictures(found))


def test_text_goes_between_its_marks_and_nowhere_else() -> None:
    page = "a\n<!-- x: by make -->\nold\n<!-- /x -->\nb"
    assert fill(page, "x", "new") == "a\n<!-- x: by make -->\n\nnew\n\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="0 places for y"):
        fill(page, "y", "new")
