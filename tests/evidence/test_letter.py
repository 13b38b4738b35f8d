"""The panels to the letter: crossings are interpolated, verdicts want three seeds, the page shows the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evidence.pages.marked import written
from evidence.studies import claims, letter
from evidence.studies.letter import Cell, Trace

ROOT = Path(__file__).parents[2]


def trace(method: str, bits: float, seed: int = 0, lowest: float = 0.01) -> Trace:
    """A loss that falls from 1 to `lowest` on a straight line of its logarithm, in ten steps."""
    losses = tuple(lowest ** (step / 10) for step in range(11))
    return Trace(method, seed, 10, losses, tuple(bits * step for step in range(11)), tuple(range(11)))


def test_a_crossing_lies_between_two_evaluations() -> None:
    assert trace("4bit", 100).at(0.05, trace("4bit", 100).paper_bits) == pytest.approx(650.5, abs=0.1)
    assert trace("4bit", 100, lowest=0.2).at(0.05, range(11)) is None


def test_a_mean_counts_only_where_every_seed_got_there() -> None:
    assert Cell((1.0, 3.0)).mean == 2.0
    assert Cell((1.0, None)).mean is None


def test_a_panel_that_is_not_the_papers_own_is_judged_at_its_own_loss() -> None:
    ours = [trace("adaquant", 100, seed, lowest=0.2) for seed in range(3)]
    rivals = [trace("4bit", 150, seed, lowest=0.2) for seed in range(3)]
    one = claims.fewest_bits({"adaquant": ours, "4bit": rivals}, "a figure", 0.3)
    assert (one.outcome, one.where) == ("reproduced", "a figure")
    assert "to loss 0.3" in one.here
    assert "4 bits 1.50 times its bits (3 seeds)" in one.here
    assert claims.fewest_bits({"adaquant": ours[:1], "4bit": rivals}, "", 0.3).outcome == "open"
    assert "(1 seed)" in claims.fewest_bits({"adaquant": ours[:1], "4bit": rivals}, "", 0.3).here
    assert claims.fewest_bits({"adaquant": rivals, "4bit": ours}, "", 0.3).outcome == "not reproduced"
    assert set(claims.ELSEWHERE) <= set(letter.WHOLE) | set(letter.SLOWER) | set(letter.TRIALS)


def test_a_verdict_wants_three_seeds_and_every_one_of_them() -> None:
    ours = [trace("adaquant", bits, seed) for seed, bits in enumerate((90, 95, 100))]
    rivals = [trace("4bit", bits, seed) for seed, bits in enumerate((120, 130, 140))]
    assert letter.verdict({"adaquant": ours, "4bit": rivals}, 0.05) == "yes"
    assert letter.verdict({"adaquant": ours, "4bit": rivals[:2]}, 0.05) == "open"
    assert letter.verdict({"adaquant": ours, "4bit": [*rivals[:2], trace("4bit", 99, 2)]}, 0.05) == "no"
    never = [trace("2bit", 10, seed, lowest=0.3) for seed in range(3)]
    assert letter.verdict({"adaquant": ours, "2bit": never}, 0.05) == "yes"
    one = {"adaquant": ours, "4bit": rivals, "8bit": [trace("8bit", 300)]}
    assert letter.verdict(one, 0.05) == "yes"
    assert letter.judged(one) == ["4bit"], "8 bits have one seed: they can only open a verdict"
    assert letter.verdict({**one, "8bit": [trace("8bit", 50)]}, 0.05) == "open"


def test_the_page_shows_the_records() -> None:
    from evidence.pages import crossing_page, letter_page

    page = (ROOT / "docs" / "results.md").read_text()
    shown = written(page, {**letter_page.blocks(), **crossing_page.blocks()})
    assert shown == page, "run: python evidence/pages/letter_page.py; python evidence/pages/crossing_page.py"


def test_where_float32_diverges_too_nothing_is_said_about_levels() -> None:
    ours = [trace("adaquant", bits, seed, lowest=0.3) for seed, bits in enumerate((90, 95, 100))]
    rivals = [trace("2bit", 10, seed, lowest=0.2) for seed in range(3)]
    assert letter.verdict({"adaquant": ours, "2bit": rivals}, 0.25) == "no"
    lost = Trace("fp32", 0, 10, (1.0, 0.5), (1.0, 2.0), (1.0, 2.0), failure="diverged")
    assert letter.verdict({"adaquant": ours, "2bit": rivals, "fp32": [lost]}, 0.25) == "open"


def test_a_loss_that_nobody_reached_says_nothing() -> None:
    runs = {method: [trace(method, 10, seed, lowest=0.3) for seed in range(3)] for method in ("adaquant", "4bit")}
    assert letter.verdict(runs, 0.05) == "open"


def test_a_run_that_was_stopped_has_not_missed_what_it_might_have_reached() -> None:
    ours = [trace("adaquant", 90, seed) for seed in range(3)]
    rivals = [trace("4bit", 120, seed) for seed in range(3)]
    stopped = replace(trace("2bit", 20, lowest=0.3), ended=False)
    assert letter.verdict({"adaquant": ours, "4bit": rivals, "2bit": [stopped]}, 0.05) == "open"
    assert letter.verdict({"adaquant": ours, "4bit": rivals, "2bit": [replace(stopped, ended=True)]}, 0.05) == "yes"
    assert letter.verdict({"adaquant": rivals, "4bit": ours, "2bit": [stopped]}, 0.05) == "no", "4 bits decide it"
    assert letter.verdict({"adaquant": [*ours[:2], replace(stopped, seed=2)], "4bit": rivals}, 0.05) == "open"


def test_a_floor_is_where_the_last_quarter_gains_less_than_five_percent() -> None:
    falling = trace("4bit", 100)
    flat = replace(falling, losses=(1.0, 0.5, 0.31, 0.3, 0.3, 0.3, 0.31, 0.32))
    assert (falling.at_floor, flat.at_floor) == (False, True)
    assert not replace(flat, ended=False).at_floor
    assert not replace(flat, failure="diverged").at_floor


def test_what_was_missed_is_told_with_the_seeds_that_got_there() -> None:
    some = {"adaquant": [trace("adaquant", 100), trace("adaquant", 100, 1, lowest=0.3)], "4bit": [trace("4bit", 120)]}
    here = claims.fewest_bits(some, "", 0.05).here
    assert here == "to loss 0.05, AdaQuantFL 1 of 2 got there (2 seeds); 4 bits sent 78 d (1 seed)."


def test_a_short_cell_has_a_factor_or_bits_and_too_few_seeds() -> None:
    from evidence.pages.letter_page import short

    assert short(None, 100.0) == "—"
    assert short(Cell((110.0, 120.0, 130.0)), 100.0) == "1.20x"
    assert short(Cell((110.0, 120.0, 130.0)), None) == "120 ± 10 d"
    assert short(Cell((110.0, None, 130.0)), 100.0) == "2 of 3 got there"
    assert short(Cell((None,)), 100.0) == "never (1 seed)"
    assert short(Cell((None,), stopped=1), 100.0) == "stopped before (1 seed)"


def test_an_aim_is_met_by_the_mean_and_shows_every_seed() -> None:
    from evidence.pages.letter_page import aims

    ours = [trace("adaquant", 100, seed) for seed in range(3)]
    coarse = [trace("2bit", 50, seed, lowest=0.4) for seed in range(3)]
    rivals = [trace("4bit", bits, seed) for seed, bits in enumerate((130, 125, 117))]
    shown = aims({letter.FULL: {"adaquant": ours, "2bit": coarse, "4bit": rivals}})
    assert "every seed | met |" in shown
    assert "bits to 0.05 | **missed**: 1.24 (1.30, 1.25, 1.17) |" in shown
    assert "2 bits never get to any of them | met |" in shown
