"""The paper's panels: crossings are interpolated, verdicts want three seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from evidence.pages import paper as page
from evidence.studies import paper, traces
from evidence.studies.traces import Cell, Trace
from support import small_runs


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
    one = paper.fewest_bits({"adaquant": ours, "4bit": rivals}, "a figure", 0.3)
    assert (one.outcome, one.where) == ("reproduced", "a figure")
    assert "to loss 0.3" in one.here
    assert "4 bits 1.50 times its bits (3 seeds)" in one.here
    assert paper.fewest_bits({"adaquant": ours[:1], "4bit": rivals}, "", 0.3).outcome == "open"
    assert "(1 seed)" in paper.fewest_bits({"adaquant": ours[:1], "4bit": rivals}, "", 0.3).here
    assert paper.fewest_bits({"adaquant": rivals, "4bit": ours}, "", 0.3).outcome == "not reproduced"
    assert set(paper.ELSEWHERE) <= set(page.TITLES) == set(paper.PANELS)


def test_a_verdict_wants_three_seeds_and_every_one_of_them() -> None:
    ours = [trace("adaquant", bits, seed) for seed, bits in enumerate((90, 95, 100))]
    rivals = [trace("4bit", bits, seed) for seed, bits in enumerate((120, 130, 140))]
    assert paper.cheapest({"adaquant": ours, "4bit": rivals}, 0.05) == "yes"
    assert paper.cheapest({"adaquant": ours, "4bit": rivals[:2]}, 0.05) == "open"
    assert paper.cheapest({"adaquant": ours, "4bit": [*rivals[:2], trace("4bit", 99, 2)]}, 0.05) == "no"
    never = [trace("2bit", 10, seed, lowest=0.3) for seed in range(3)]
    assert paper.cheapest({"adaquant": ours, "2bit": never}, 0.05) == "yes"
    one = {"adaquant": ours, "4bit": rivals, "8bit": [trace("8bit", 300)]}
    assert paper.cheapest(one, 0.05) == "yes"
    assert paper.judged(one) == ["4bit"], "8 bits have one seed: they can only open a verdict"
    assert paper.cheapest({**one, "8bit": [trace("8bit", 50)]}, 0.05) == "open"


def test_where_float32_diverges_too_nothing_is_said_about_levels() -> None:
    ours = [trace("adaquant", bits, seed, lowest=0.3) for seed, bits in enumerate((90, 95, 100))]
    rivals = [trace("2bit", 10, seed, lowest=0.2) for seed in range(3)]
    assert paper.cheapest({"adaquant": ours, "2bit": rivals}, 0.25) == "no"
    lost = Trace("fp32", 0, 10, (1.0, 0.5), (1.0, 2.0), (1.0, 2.0), failure="diverged")
    assert paper.cheapest({"adaquant": ours, "2bit": rivals, "fp32": [lost]}, 0.25) == "open"


def test_a_run_that_was_stopped_has_not_missed_what_it_might_have_reached() -> None:
    ours = [trace("adaquant", 90, seed) for seed in range(3)]
    rivals = [trace("4bit", 120, seed) for seed in range(3)]
    stopped = replace(trace("2bit", 20, lowest=0.3), ended=False)
    assert paper.cheapest({"adaquant": ours, "4bit": rivals, "2bit": [stopped]}, 0.05) == "open"
    assert paper.cheapest({"adaquant": ours, "4bit": rivals, "2bit": [replace(stopped, ended=True)]}, 0.05) == "yes"
    assert paper.cheapest({"adaquant": rivals, "4bit": ours, "2bit": [stopped]}, 0.05) == "no", "4 bits decide it"
    assert paper.cheapest({"adaquant": [*ours[:2], replace(stopped, seed=2)], "4bit": rivals}, 0.05) == "open"


def test_a_run_is_kept_once_with_its_evaluations_and_its_end(tmp_path: Path) -> None:
    changes = {**small_runs.TINY, "dataset": "fashion-mnist-sample", "rounds": 2, "evaluate_every": 1, "workers": 1}
    job = Job(load_config("demo", {**changes, "seed": 4}), tmp_path / "run")
    for _ in range(2):
        traces.keep(job, "adaquant", tmp_path / "panel.jsonl")
    ((one,),) = traces.load(tmp_path / "panel.jsonl").values()
    assert (one.method, one.seed, len(one.losses), one.ended, one.failure) == ("adaquant", 4, 2, True, "")
    assert one.summary["rounds"] == 2
    assert one.summary["wire_bytes_up"] == one.bytes_up[-1]
