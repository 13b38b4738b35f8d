"""`adaquantfl bench` compares what it measures with the targets. No test depends on what that is."""

from __future__ import annotations

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.cli import main, targets
from adaquantfl.cli.targets import Figure, figures, levels_of_entropy, table
from adaquantfl.codecs.dense_table import entropy_bytes, histogram


def test_a_bar_shows_the_share_of_the_target() -> None:
    assert Figure("", 1.0, "", 1.0).bar == "==========|         "
    assert Figure("", 5.0, "", 1.0).bar == "=" * 20
    assert Figure("", 0.0, "", 1.0).bar == "          |         "
    assert Figure("", 2.0, "", 1.0, least=False).bar == "=====     |         "


def test_a_line_has_the_figure_the_target_and_whether_it_is_met() -> None:
    met, missed = Figure("speed", 2.0, "GB/s", 1.0), Figure("time", 3.0, "us", 2.0, least=False)
    assert str(met).split() == ["speed", "2", "GB/s", ">=", "1", "=" * 20, "met"]
    assert str(missed).split() == ["time", "3", "us", "<=", "2", "======", "|"]
    assert table([met, missed]).startswith("1 of 2 targets")


@pytest.mark.parametrize("bits", targets.ENTROPIES)
def test_levels_have_the_entropy_that_is_asked_for(bits: float) -> None:
    levels = levels_of_entropy(bits, 200_000)
    assert 8 * entropy_bytes(histogram(levels.values, levels.s)) / 200_000 == pytest.approx(bits, rel=0.04)


def test_every_figure_is_measured_and_the_number_of_threads_is_as_before() -> None:
    before = aq.get_threads()
    found = list(figures(long=70_000, middle=70_000, short=(1_000,), entropies=(1.0, 4.0)))
    assert all(np.isfinite(figure.measured) and figure.measured > 0 for figure in found)
    names = " ".join(figure.name for figure in found)
    for word in ("dense, 1.0 bits", "dense, 4.0 bits", "size", "fixed, s = 255", "sparse", "auto, s = 15, d = 1,000"):
        assert word in names
    assert aq.get_threads() == before


def test_the_command_prints_every_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(targets, "figures", lambda: iter([Figure("speed", 2.0, "GB/s", 1.0)]))
    assert main(["bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("speed")
    assert lines[1].startswith("1 of 1 targets are met")
