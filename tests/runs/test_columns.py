"""One table of columns drives everything that shows a history."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.report import page_data
from adaquantfl.report.page import write_report
from adaquantfl.report.write import history_csv
from adaquantfl.runs import loop as runner
from adaquantfl.runs.columns import COLUMNS, Column, flat, summary_of
from adaquantfl.runs.config import load_config
from adaquantfl.runs.records import RunRecord, load_run
from adaquantfl.runs.tracking import scalars_of

MakeRun = Callable[..., Path]
SMALL = {"model": "mlp", "clients": 2, "tau": 2, "rounds": 4, "loss_samples": 16, "workers": 1, "evaluate_every": 2}
ENERGY = Column(
    "energy", "Energy of the round.", unit="J", summary="energy_joules", over_run="total",
    label="Energy", scale="linear", head="energy",
)  # fmt: skip


def rewritten(run: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> RunRecord:
    """The run with each line of its history changed."""
    file = run / "history.jsonl"
    lines = [change(json.loads(line)) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_run(run)


def rows_of(run: RunRecord) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(history_csv([run], run.path))))


def test_a_new_column_is_one_line(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, "energy", ENERGY)
    run = rewritten(make_run("run", losses=[2.0, 1.0, 0.5]), lambda line: {**line, "energy": 1500.0 * line["round"]})
    assert [row["energy"] for row in rows_of(run)] == ["1500.0", "3000.0", "4500.0"]
    assert scalars_of(run.history[1])["energy"] == 3000.0
    assert page_data.columns(run)["energy"] == [None, 1500.0, 3000.0, 4500.0]
    (plot,) = [plot for plot in page_data.plots() if plot["name"] == "energy"]
    assert (plot["title"], plot["logY"], plot["ys"][0]["unit"]) == ("Energy", False, "J")
    assert summary_of(run.history, {})["energy_joules"] == 9000.0
    page = write_report([run], run.path).read_text(encoding="utf-8")
    assert '<th scope="col">energy</th>' in page
    assert "<td>4.50 kJ</td>" in page


def test_an_unknown_column_goes_into_the_csv_as_it_is(make_run: MakeRun) -> None:
    strange = {"mood": "=good", "depth": {"mean": 3, "of": {"a": 1}}, "list": [1, 2]}
    run = rewritten(make_run("run", losses=[1.0, 0.5]), lambda line: {**line, **strange})
    row = rows_of(run)[0]
    assert (row["mood"], row["depth_mean"], row["depth_of"], row["list"]) == ("'=good", "3", '{"a": 1}', "[1, 2]")
    assert not {"mood", "depth.mean", "list"} & (scalars_of(run.history[0]).keys() | page_data.columns(run).keys())


@pytest.mark.parametrize("settings", [{}, {"quantizer": "eden", "rule": "2bit"}], ids=["paper", "eden"])
def test_every_column_of_a_run_is_declared_and_its_summary_follows(settings: dict[str, Any], tmp_path: Path) -> None:
    summary = runner.run(load_config("demo", {**SMALL, **settings}), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert {name for line in run.history for name in flat(line)} <= COLUMNS.keys()
    start = {name: summary[column.initial] for name, column in COLUMNS.items() if column.initial in summary}
    found = summary_of(run.history, start)
    assert {key: found[key] for key in found if key in summary} == {
        key: summary[key] for key in found if key in summary
    }
    assert (found["paper_bits"] is None) == bool(settings)  # the formula is the paper's quantizer's
    assert {"rounds", "paper_bits", "wire_bytes_up", "wire_bytes_down", "final_loss", "final_accuracy"} <= found.keys()


def test_a_summary_tells_last_values_sums_and_means_apart() -> None:
    history: list[dict[str, Any]] = [
        {"round": 1, "bits_per_element": 2, "loss": 0.9, "paper_bits": 10},
        {"round": 2, "bits_per_element": 4, "undone": True, "paper_bits": 30},
        {"round": 3, "bits_per_element": 6, "undone": True, "loss": None, "paper_bits": 60},
    ]
    found = summary_of(history, {"loss": 2.3})
    assert (found["rounds"], found["paper_bits"], found["mean_bits_per_element"]) == (3, 60, 4)
    assert found["undone_rounds"] == 2
    assert found["final_loss"] is None  # the last evaluation was not finite
    assert (found["initial_loss"], found["initial_accuracy"]) == (2.3, None)
    assert not {"final_test_loss", "initial_test_loss"} & found.keys()
    assert "undone_rounds" not in summary_of(history[:1], {})


def test_no_two_columns_share_a_name() -> None:
    for field in ("scalar", "summary", "initial", "label", "caption", "head", "x"):
        values = [value for column in COLUMNS.values() if (value := getattr(column, field))]
        assert len(values) == len(set(values)), field
    assert all(column.about.endswith(".") and column.name == name for name, column in COLUMNS.items())
