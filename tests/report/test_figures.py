from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib.image import imread

from adaquantfl.errors import DataError
from adaquantfl.report.figures import NAMES, STYLES, draw, figure, styles
from adaquantfl.runs.records import find_runs, load_run

MakeRun = Callable[..., Path]


def test_every_figure_is_written_twice_and_is_not_blank(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [load_run(make_run(name, name, losses=[2.0, 0.5, 0.1])) for name in ("adaquant", "4bit")]
    paths = draw(runs, tmp_path / "figures")
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in NAMES for kind in ("png", "pdf")]
    for path in paths:
        assert path.stat().st_size > 5_000
        if path.suffix == ".png":
            assert np.asarray(imread(path))[..., :3].std() > 0.02


def test_the_axis_is_linear_for_the_papers_methods_and_logarithmic_with_float32(comparison: Path) -> None:
    runs = find_runs([comparison])
    assert figure("loss", runs).axes[0].get_xscale() == "log"
    quantized = [run for run in runs if run.method != "fp32"]
    assert figure("loss", quantized).axes[0].get_xscale() == "linear"


def test_a_line_is_the_mean_over_seeds_and_carries_the_method_name(comparison: Path) -> None:
    runs = find_runs([comparison / "4bit"])
    (axes,) = figure("loss", runs).axes
    line = next(line for line in axes.lines if line.get_label() == "4-bit")
    expected = np.mean([run.series("loss")[1] for run in runs], axis=0)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), expected)


def test_bits_an_element_start_at_zero_bits_and_step(make_run: MakeRun) -> None:
    run = load_run(make_run("run", losses=[2.0, 0.5, 0.1]))
    (axes,) = figure("bits", [run]).axes
    line = axes.lines[0]
    assert line.get_drawstyle() == "steps-pre"
    assert np.asarray(line.get_xdata(), dtype=float)[0] == 0.0
    assert list(np.asarray(line.get_ydata(), dtype=float)) == [2, 2, 2, 3]


def test_seeds_that_stopped_early_and_unfinished_runs_are_drawn(make_run: MakeRun) -> None:
    runs = [
        load_run(make_run("a", seed=0, losses=[2.0, 1.0, 0.5, 0.4])),
        load_run(make_run("b", seed=1, losses=[2.0, 1.1], finished=False)),
    ]
    (axes,) = figure("loss", runs).axes
    mean, *tails = axes.lines
    np.testing.assert_allclose(np.asarray(mean.get_ydata(), dtype=float), [2.0, 1.05])
    assert max(float(np.asarray(tail.get_xdata(), dtype=float)[-1]) for tail in tails) > 10


def test_a_run_that_diverged_is_drawn_as_far_as_it_has_numbers(make_run: MakeRun) -> None:
    run = load_run(make_run("run", "2bit", losses=[2.0, 9.0, float("inf"), float("nan")]))
    picture = figure("loss", [run])
    picture.canvas.draw()
    assert picture.axes[0].get_ylim()[1] < 100


def test_methods_differ_in_more_than_colour() -> None:
    looks = list(styles([*STYLES, "AdaQuantFL (nearest)", "4-bit, codec sparse"]).values())
    assert len({look.colour for look in looks}) == len(looks)
    assert len({look.marker for look in looks}) == len(looks)
    assert len({str(look.dash) for look in looks}) == len(looks)


def test_a_dozen_variants_of_one_method_still_look_different() -> None:
    looks = styles(["AdaQuantFL", *(f"AdaQuantFL, s0 {s0}" for s0 in range(30))])
    assert len(set(looks.values())) == 31
    assert looks["AdaQuantFL"] == STYLES["AdaQuantFL"]


def test_a_legend_is_whole(comparison: Path) -> None:
    runs = find_runs([comparison])
    named = [replace(run, config={**run.config, "note": "a long setting"[: run.seed * 14]}) for run in runs]
    for shown in (runs, named):
        picture = figure("loss", shown)
        picture.draw_without_rendering()
        (legend,) = picture.legends
        assert legend.get_window_extent().x0 >= 0
        assert legend.get_window_extent().x1 <= picture.bbox.width


def test_there_must_be_a_round_to_draw(make_run: MakeRun) -> None:
    with pytest.raises(DataError, match="no finished round"):
        figure("loss", [load_run(make_run("run", losses=[]))])
    with pytest.raises(ValueError, match="expected one of loss"):
        figure("lossy", [])
