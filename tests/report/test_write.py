"""What `adaquantfl report` makes of folders: damaged runs are named, deep folders left alone, tasks kept apart."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from adaquantfl.cli import main
from adaquantfl.errors import DataError
from adaquantfl.report import figures
from adaquantfl.report.write import write_all
from adaquantfl.runs.records import find_runs

MakeRun = Callable[..., Path]
LOSSES = [1.5, 0.9, 0.45]


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "draw", lambda *_: [])


def test_a_damaged_run_is_left_out_and_named(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    whole, torn, empty = make_run("c/one", losses=LOSSES), make_run("c/two", "2bit", losses=LOSSES), make_run("c/x")
    (torn / "history.jsonl").write_text("{\n{}\n")
    (empty / "config.toml").write_text("rounds = \n")
    folder = whole.parent
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr()
    assert f"{torn} is left out: Line 1 of" in said.err
    assert f"{empty} is left out: {empty / 'config.toml'} is not valid TOML" in said.err
    assert "AdaQuantFL" in said.out
    assert "2-bit" not in (folder / "report.html").read_text()


def test_folders_are_searched_two_levels_deep(make_run: MakeRun) -> None:
    near, far = make_run("out/method/seed-0", losses=LOSSES), make_run("far/a/b/c", "2bit", losses=LOSSES)
    assert [run.path for run in find_runs([near.parents[1]])] == [near]
    assert [run.path for run in find_runs([far])] == [far]
    with pytest.raises(DataError, match="2 levels deep"):
        find_runs([far.parents[2]])
    assert [run.path for run in find_runs([far.parents[1]])] == [far]


def test_different_tasks_are_not_compared_in_one_table(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = make_run("c/one", losses=LOSSES), make_run("c/two", "2bit", losses=LOSSES, model="resnet18")
    assert main(["report", str(one.parent)]) == 1
    errors = capsys.readouterr().err
    assert "2 different tasks" in errors
    assert str(one) in errors
    assert str(other) in errors
    assert not (one.parent / "report.html").exists()
    assert main(["report", str(one)]) == 0


def test_one_label_for_one_method_so_that_tables_join(make_run: MakeRun, tmp_path: Path) -> None:
    made = [
        make_run("a", losses=LOSSES),
        make_run("b", losses=LOSSES, **{"rule.rounding": "nearest"}),
        make_run("c", "2bit", losses=LOSSES),
        make_run("d", "2bit", losses=LOSSES, quantizer="eden"),
    ]
    write_all(made, tmp_path / "out")
    with (tmp_path / "out" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    labels = {"AdaQuantFL", "AdaQuantFL (nearest)", "2-bit", "2-bit + eden"}
    assert {row["method"] for row in rows} == labels
    assert {row["paper_bits"] for row in rows if row["method"] == "2-bit + eden"} == {""}
    by_bytes, by_formula, _ = re.split(r"\n\n\n", (tmp_path / "out" / "table.md").read_text())
    assert {label for label in labels if f"| {label} |" in by_bytes} == labels
    # The paper's formula does not describe EDEN.
    assert {label for label in labels if f"| {label} |" in by_formula} == labels - {"2-bit + eden"}


def test_a_report_of_some_methods_in_another_format(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # figures are drawn here
    runs = [make_run(name, name, losses=LOSSES) for name in ("adaquant", "2bit", "8bit")]
    out = tmp_path / "paper"
    options = ["--methods", "8bit,adaquant", "--format", "svg", "--out", str(out)]
    assert main(["report", *map(str, runs), *options]) == 0
    assert (out / "paper.svg").is_file()
    assert "2-bit" not in (out / "table.md").read_text()
    assert "8-bit" in (out / "table.md").read_text()
    assert not list(out.glob("*.pdf"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "gif"], "png, pdf, svg"),
        (["--methods", "4bit"], "There are: AdaQuantFL"),
        (["--methods", "4bits"], "Did you mean '4bit'"),
    ],
)
def test_a_report_that_cannot_be_is_refused(
    options: list[str],
    words: str,
    make_run: MakeRun,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert main(["report", str(make_run("one", losses=LOSSES)), *options]) == 1
    assert words in capsys.readouterr().err
