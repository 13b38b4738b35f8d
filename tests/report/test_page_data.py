"""The numbers that the page draws are the runs' own."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from adaquantfl.report.figures import SPARE, STYLES
from adaquantfl.report.page_data import columns, embedded, lighter, plot_data
from adaquantfl.report.write import history_csv
from adaquantfl.runs.records import find_runs, load_run

MakeRun = Callable[..., Path]


def test_columns_are_the_history_from_the_known_start_on(make_run: MakeRun) -> None:
    run = load_run(make_run("run", losses=[1.0, None, 0.5]))
    shown = columns(run)
    assert shown["round"] == [0, 1, 2, 3]
    assert shown["loss"] == [2.3, 1.0, None, 0.5]
    assert shown["paper_bits"] == [0, *(line["paper_bits"] for line in run.history)]
    assert shown["s"] == [None, *(line["s"] for line in run.history)]
    assert "seconds" not in shown  # this history has no time of whole rounds
    assert columns(load_run(make_run("going", losses=[1.0], finished=False)))["round"] == [1]


def test_bytes_a_round_and_a_clients_bits_add_up_to_the_totals(make_run: MakeRun) -> None:
    run = load_run(make_run("run", "4bit"))
    shown = columns(run)
    assert sum(shown["up_a_round"][1:]) == pytest.approx(run.history[-1]["wire_bytes_up"], rel=1e-5)
    assert shown["wire_bits"][-1] == pytest.approx(8 * run.history[-1]["wire_bytes_up"] / 4, rel=1e-6)


def test_methods_differ_in_colour_dash_and_marker(comparison: Path) -> None:
    shown = plot_data(find_runs([comparison]))
    assert [method["label"] for method in shown] == ["AdaQuantFL", "2-bit", "4-bit", "8-bit", "float32"]
    assert [method["ours"] for method in shown] == [True, False, False, False, False]
    assert all(len(method["runs"]) == 2 for method in shown)
    for key in ("colour", "dark", "dash", "marker"):
        assert len({method[key] for method in shown}) == len(shown)


def test_every_line_colour_stands_out_from_the_page() -> None:
    for style in (*STYLES.values(), *SPARE):
        assert 1.05 / (luminance(style.colour) + 0.05) >= 3, style  # on white
        assert (luminance(lighter(style.colour)) + 0.05) / (luminance("#1b2127") + 0.05) >= 3, style


def test_what_is_not_finite_or_would_end_the_script_stays_harmless(make_run: MakeRun) -> None:
    folder = make_run("run", losses=[1.0, 0.5], dataset="</script><!--")
    lines = (folder / "history.jsonl").read_text().replace('"loss": 0.5', '"loss": NaN')
    (folder / "history.jsonl").write_text(lines)
    runs = [load_run(folder)]
    assert math.isnan(runs[0].history[1]["loss"])
    text = embedded([plot_data(runs), runs[0].config])
    assert "<" not in text
    back, config = json.loads(text)
    assert back[0]["runs"][0]["columns"]["loss"] == [2.3, 1.0, None]
    assert config["dataset"] == "</script><!--"


def test_the_csv_has_every_round_of_every_run(comparison: Path) -> None:
    runs = find_runs([comparison])
    rows = list(csv.DictReader(io.StringIO(history_csv(runs, comparison))))
    assert len(rows) == sum(len(run.history) for run in runs)
    assert list(rows[0])[:4] == ["run", "method", "seed", "round"]
    last = rows[-1]
    assert (last["run"], last["method"], last["seed"], last["round"]) == ("fp32/seed-1", "float32", "1", "60")
    assert float(last["loss"]) == runs[-1].history[-1]["loss"]
    assert last["s"] == ""
    assert last["seconds_train"] == "0.5"


def luminance(colour: str) -> float:
    """Of "#rrggbb", as WCAG defines it."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
