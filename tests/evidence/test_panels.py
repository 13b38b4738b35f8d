"""The paper's panels are shown as far as they have records, and say how far that is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evidence.studies import panels
from evidence.studies.panels import Panel, load_panels
from evidence.studies.reproduce import PANELS

MakeRun = Callable[..., Path]
CNN = "fmnist-cnn-iid"  # 600 rounds


def load(path: Path, name: str = CNN) -> Panel:
    return next(panel for panel in load_panels(path) if panel.name == name)


def test_every_panel_has_its_place_in_the_papers_figures() -> None:
    assert set(panels.PLACES) == set(PANELS)
    assert [f"{p.loss_figure}{p.letter}" for p in panels.PLACES.values()] == ["2a", "2b", "2c", "3a", "3b", "3c"]


def test_any_panels_and_methods_will_do(make_run: MakeRun, tmp_path: Path) -> None:
    assert load_panels(tmp_path) == []
    make_run(f"{CNN}/2bit", "2bit")
    make_run("cifar-resnet18-noniid/adaquant")
    assert [panel.name for panel in load_panels(tmp_path)] == ["cifar-resnet18-noniid", CNN]
    make_run(f"{CNN}/adaquant")
    assert [run.method for run in load(tmp_path).runs] == ["adaquant", "2bit"]


def test_runs_that_are_short_of_their_budget_say_so(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 1.0])
    assert load(tmp_path).extent == "2 of 600 rounds"
    make_run(f"{CNN}/2bit", "2bit", losses=[2.0, 1.0, 0.9])
    assert load(tmp_path).extent == "2 to 3 of 600 rounds"
    assert panels.extents([load(tmp_path)])[1][1:4] == ["2", "3", "—"]


def test_a_run_that_reached_the_target_is_not_short(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 0.02])
    assert load(tmp_path).extent == "600 rounds or loss 0.02"


def test_the_common_level_is_the_lowest_that_all_quantized_methods_reached(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 0.1])
    make_run(f"{CNN}/2bit", "2bit", losses=[2.0, 0.3341])
    make_run(f"{CNN}/fp32", "fp32", losses=[2.0, 1.5])  # the reference is not in the race
    level = load(tmp_path).common_level()
    assert level == 0.34
    assert all(run.bits_to_loss(level) for run in load(tmp_path).quantized)


def test_the_way_to_the_common_loss_is_rounds_times_bits_a_round(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 1.0, 0.5])
    make_run(f"{CNN}/4bit", "4bit", losses=[1.0, 0.5])
    header, ours, fixed = panels.way_to_common_loss(load(tmp_path))
    assert header[:4] == ["Method", "rounds", "s on the way", "bits per element and round"]
    assert ours == ["AdaQuantFL", "3", "2 to 3", "3.00", "9.00 Mb", "1.00x"]
    assert fixed == ["4-bit", "2", "15", "5.00", "10.0 Mb", "1.11x"]


def test_round_losses_are_averaged_between_evaluations(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant")
    raw, smooth = load(tmp_path).runs[0], load(tmp_path).smoothed.runs[0]
    rounds, values = smooth.series("round_loss", "round")
    assert rounds[0] == 10
    np.testing.assert_allclose(values[0], np.mean([line["round_loss"] for line in raw.history[:10]]))
    assert [line["paper_bits"] for line in smooth.history] == [line["paper_bits"] for line in raw.history]


def test_tables_have_a_column_for_every_method(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/16bit", "16bit", losses=[0.5, 0.4, None, 0.6])
    found = load_panels(tmp_path)
    assert panels.floors(found)[1][1:] == ["—"] * 4 + ["0.400 / —", "—"]
    assert panels.accuracies(found)[1][5] == "77.00% / 82.00%"


def test_floors_and_accuracies_compare_the_rounds_that_all_have(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 1.0, 0.5])
    make_run(f"{CNN}/16bit", "16bit", losses=[2.0, 0.9])
    found = load_panels(tmp_path)
    assert panels.floors(found)[1][0].endswith("2 of 600 rounds")
    assert panels.floors(found)[1][1].startswith("1.00 /")
    assert len(panels.accuracies(found)[1]) == 7


def test_a_run_that_stopped_at_the_target_cuts_no_other_short(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[2.0, 0.02])
    make_run(f"{CNN}/2bit", "2bit", losses=[2.0, 1.0, 0.5])
    assert [run.rounds for run in load(tmp_path).same_rounds.runs] == [2, 3]


def test_a_figure_has_a_column_a_panel_and_names_its_rounds(make_run: MakeRun, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in (CNN, "fmnist-cnn-noniid"):
        make_run(f"{name}/adaquant")
        make_run(f"{name}/2bit", "2bit")
    picture = panels.figure(load_panels(tmp_path), ["loss", "round_loss", "bits_per_element"])
    assert len(picture.axes) == 6
    titles = [axes.get_title() for axes in picture.axes if axes.get_title()]
    assert titles == ["(a) fixed rate, i.i.d.\n60 of 600 rounds", "(c) fixed rate, sorted labels\n60 of 600 rounds"]
