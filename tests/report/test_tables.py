import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from adaquantfl.report.headline import headline
from adaquantfl.report.tables import (
    Ratio,
    bits_table,
    loss_levels,
    ratio,
    si_unit,
    significant,
    to_markdown,
    to_text,
)
from adaquantfl.runs.records import RunRecord, find_runs

MakeRun = Callable[..., Path]
FAST: list[float | None] = [1.5, 0.9, 0.45, 0.28, 0.15]
SLOW: list[float | None] = [2.1, 1.8, 1.2, 0.9, 0.8, 0.6, 0.48, 0.45]


def load(*paths: Path) -> list[RunRecord]:
    return find_runs(paths)


def test_ratios_are_to_what_adaquantfl_sent(make_run: MakeRun) -> None:
    runs = load(make_run("ours", "adaquant", losses=FAST), make_run("theirs", "8bit", losses=[1.9, *FAST]))
    table = bits_table(runs, levels=[0.5], measure="paper_bits")
    ours, theirs = (row.cells[0] for row in table.rows)
    assert ours.ratio == Ratio(1.0)
    assert theirs.mean == 4 * (9_000_000 + 32)
    assert ours.mean is not None
    assert theirs.ratio == Ratio(theirs.mean / ours.mean)
    wire = bits_table(runs, levels=[0.5], measure="wire_bytes_up")
    assert wire.rows[1].cells[0].mean == 4 * 160_000


def test_methods_that_tie_at_one_evaluation_get_an_interpolated_ratio_with_its_uncertainty(make_run: MakeRun) -> None:
    """Both cross 0.5 in round 3: ours from 0.9 to 0.45, theirs from 0.9 to 0.1, so theirs is there earlier."""
    ours, theirs = load(make_run("ours", "2bit", losses=FAST)), load(make_run("theirs", "8bit", losses=[1.5, 0.9, 0.1]))
    share = {end: math.log(0.9 / 0.5) / math.log(0.9 / end) for end in (0.45, 0.1)}
    for measure, cost in {"round": 1, "wire_bytes_up": 4}.items():
        found = ratio(theirs, ours, 0.5, measure)
        assert found is not None
        assert found.value == pytest.approx(cost * (2 + share[0.1]) / (2 + share[0.45]))
        assert found.within == pytest.approx(cost * (3 / 2 - 2 / 3) / 2)
        assert str(found) == f"{found.value:.2f}x ± {found.within:.2g}"
    assert ratio(ours, theirs, 2.0, "round") is None, "before the first evaluation nothing bounds it"


def test_runs_on_other_data_get_no_ratio(make_run: MakeRun) -> None:
    runs = load(make_run("ours", losses=FAST), make_run("theirs", "8bit", losses=SLOW, partition="sorted"))
    assert bits_table(runs, levels=[0.5]).rows[1].cells[0].ratio is None


def test_a_level_that_is_not_reached_is_a_dash_beside_the_lowest_loss(make_run: MakeRun) -> None:
    runs = load(make_run("ours", losses=FAST), make_run("theirs", "2bit", losses=SLOW))
    row = bits_table(runs, levels=[0.2, 0.5], measure="paper_bits").grid()[2]
    assert row[0] == "2-bit"
    assert row[1] != "—"
    assert row[2:] == ["—", "0.450"]


def test_seeds_become_a_mean_and_a_standard_deviation(make_run: MakeRun) -> None:
    paths = [make_run(f"s{seed}", "2bit", seed, losses=[2.0] * seed + [0.4]) for seed in (1, 3)]
    (row,) = bits_table(load(*paths), levels=[0.5], measure="paper_bits").rows
    rounds = 3_000_032
    assert row.cells[0].mean == 3 * rounds
    assert row.cells[0].std == pytest.approx(2**0.5 * rounds)


def test_a_level_that_some_seeds_reached_says_so_and_earns_no_ratio(make_run: MakeRun) -> None:
    runs = load(
        make_run("ours", losses=FAST), make_run("a", "2bit", 0, losses=FAST), make_run("b", "2bit", 1, losses=SLOW)
    )
    table = bits_table(runs, levels=[0.2])
    assert table.rows[1].cells[0].ratio is None
    assert table.grid()[2][1].endswith("[1 of 2 seeds]")


def test_levels_are_round_and_include_the_lowest_that_all_reached(make_run: MakeRun) -> None:
    runs = load(make_run("ours", losses=FAST), make_run("theirs", "2bit", losses=[2.1, 0.4321]))
    assert loss_levels(runs) == [2.0, 1.0, 0.5, 0.44, 0.3, 0.2]
    assert bits_table(runs).levels == (2.0, 1.0, 0.5, 0.44, 0.3, 0.2)


def test_headline_names_the_cheapest_method_when_it_is_adaquantfl(make_run: MakeRun) -> None:
    text = headline(load(make_run("ours", losses=FAST), make_run("theirs", "8bit", losses=SLOW + FAST)))
    assert text.startswith("To loss 0.15, AdaQuantFL sent the least: ")
    assert re.search(r"8-bit, the next, sent .*, \d\.\d\dx as much\.", text)


def test_headline_names_the_cheapest_method_when_it_is_not_adaquantfl(make_run: MakeRun) -> None:
    text = headline(load(make_run("ours", losses=SLOW), make_run("theirs", "2bit", losses=FAST)))
    assert text.startswith("To loss 0.45, 2-bit sent the least: ")
    assert re.search(r"AdaQuantFL sent .*, \d\.\d\dx as much\.", text)
    assert text.endswith("Only 2-bit reached loss 0.2.")


def test_headline_says_what_was_sent_by_the_papers_formula_too_and_who_did_not_get_so_low(make_run: MakeRun) -> None:
    runs = load(make_run("ours", losses=FAST), make_run("a", "8bit", losses=FAST), make_run("b", "2bit", losses=SLOW))
    text = headline(runs, "paper_bits")
    assert re.search(r"AdaQuantFL sent the least: .* Mb \(uplink of one client by the paper's formula\)\.", text)
    assert re.search(r"8-bit, the next, sent .* Mb, 2\.\d\dx ± \d\.\d+ as much\. 2-bit did not reach it\.", text)


def test_headline_names_no_winner_that_one_evaluation_cannot_show(make_run: MakeRun) -> None:
    """3-bit may have been at the loss anywhere between two evaluations, also before AdaQuantFL was seen there."""
    sparse: list[float | None] = [None, None, None, None, 0.9, None, None, None, None, 0.4]
    rare = load(make_run("ours", losses=sparse), make_run("theirs", "3bit", losses=sparse))
    text = headline(rare)
    assert text.startswith("At loss 0.4 the evaluations do not show which method sent the least")
    assert "AdaQuantFL 200 kB to 400 kB; 3-bit 300 kB to 600 kB." in text
    assert text.endswith("Evaluate more often (evaluate_every) to tell them apart.")
    assert "as much" not in text
    often = load(make_run("mine", losses=[0.9] * 9 + [0.4]), make_run("other", "3bit", losses=[0.9] * 9 + [0.4]))
    assert headline(often).startswith("To loss 0.4, AdaQuantFL sent the least")


def test_headline_claims_nothing_without_a_rival_or_across_experiments(make_run: MakeRun) -> None:
    rival = make_run("theirs", "2bit", losses=SLOW)
    assert re.fullmatch(r"Only 2-bit reached loss 0\.\d+, in .* of uplink\.", headline(load(rival)))
    ours = make_run("ours", losses=FAST, model="resnet18")
    assert headline(load(ours, rival)) == ("These runs differ in their model, so their bits are not compared here.")


def test_both_outputs_tell_the_same_story(comparison: Path) -> None:
    table = bits_table(find_runs([comparison]), levels=[0.5, 0.1])
    header, *rows = table.grid()
    markdown, text = to_markdown(table), to_text(table)
    assert "| " + " | ".join(header) + " |" in markdown
    for row in rows:
        assert "| " + " | ".join(row) + " |" in markdown
        assert all(cell in text for cell in row)


def test_numbers_keep_their_significant_digits() -> None:
    assert [significant(value) for value in (0.01234, 1.0, 12.345, 12345.6)] == ["0.0123", "1.00", "12.3", "12346"]
    assert si_unit(3.2e9, "b") == (1e9, "Gb")
    assert si_unit(999, "B") == (1.0, "B")
