"""Verdicts on the paper's headlines follow from the records, and the worst news comes first."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evidence.studies import claims
from evidence.studies.panels import PLACES, load_panels

MakeRun = Callable[..., Path]
Losses = list[float | None]
RESNET, CNN, SORTED = "cifar-resnet18-iid", "fmnist-cnn-iid", "fmnist-cnn-noniid"
FALLING: Losses = [1.0, 0.3, 0.1, 0.02]


def verdict(root: Path, about: str) -> claims.Verdict:
    return next(one for one in claims.verdicts(load_panels(root)) if about in one.claim)


def test_without_records_nothing_is_said(tmp_path: Path) -> None:
    assert {one.outcome for one in claims.verdicts([])} == {"open"}
    assert claims.verdicts(load_panels(tmp_path)) == claims.verdicts([])


def test_what_does_not_reproduce_is_told_first(make_run: MakeRun, tmp_path: Path) -> None:
    for method in ("adaquant", "2bit", "4bit", "16bit"):
        make_run(f"{CNN}/{method}", method)
        make_run(f"{SORTED}/{method}", method, losses=FALLING)
    ranks = [claims.OUTCOMES.index(one.outcome) for one in claims.verdicts(load_panels(tmp_path))]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [
        (FALLING, FALLING, "not reproduced"),  # AdaQuantFL's levels grow, so its rounds cost more
        (FALLING, [1.0, 0.9, 0.8, 0.7, 0.6, *FALLING], "partly reproduced"),
        (FALLING, [*[0.9] * 20, 0.02], "reproduced"),
        (FALLING, [1.0, 0.9], "reproduced"),  # 2 bits never get there
        ([1.0, 0.5], [1.0, 0.9, 0.8, 0.7, 0.5], "partly reproduced"),  # nobody does
        ([1.0, 0.8, 0.5], [0.5], "not reproduced"),
    ],
)
def test_six_times_fewer_bits(make_run: MakeRun, tmp_path: Path, ours: Losses, theirs: Losses, outcome: str) -> None:
    make_run(f"{RESNET}/adaquant", losses=ours)
    make_run(f"{RESNET}/2bit", "2bit", losses=theirs)
    assert verdict(tmp_path, "0.3 Gb").outcome == outcome


def test_a_run_short_of_its_budget_is_named_as_such(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{RESNET}/adaquant", losses=[1.0, 0.5])
    make_run(f"{RESNET}/2bit", "2bit", losses=[1.0, 0.5])
    assert "AdaQuantFL did not reach 0.02 (lowest 0.500)" in verdict(tmp_path, "0.3 Gb").here
    assert verdict(tmp_path, "0.3 Gb").here.endswith("(2 of 300 rounds).")


def test_as_many_bits_are_not_fewer(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[1.0])  # s = 2 costs what s = 3 costs
    make_run(f"{CNN}/2bit", "2bit", losses=[1.0])
    (panel,) = load_panels(tmp_path)
    result = claims.race(panel)
    assert result is not None
    assert (result.ratio, result.best, result.level) == (1.0, "2-bit", 1.0)


@pytest.mark.parametrize(
    ("won", "lost", "outcome"),
    [(0, 1, "open"), (3, 2, "open"), (4, 0, "reproduced"), (1, 3, "partly reproduced"), (0, 3, "not reproduced")],
)
def test_most_cases_stay_open_while_missing_panels_could_decide(
    make_run: MakeRun, tmp_path: Path, won: int, lost: int, outcome: str
) -> None:
    for number, name in enumerate(list(PLACES)[: won + lost]):
        make_run(f"{name}/adaquant", losses=[0.5])
        make_run(f"{name}/2bit", "2bit", losses=[1.0, 0.5] if number < won else [0.5])
    assert verdict(tmp_path, "most cases").outcome == outcome


def test_the_race_is_against_the_cheapest_fixed_level(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[1.0, 0.5])
    make_run(f"{CNN}/2bit", "2bit", losses=[1.0, 1.0, 1.0, 0.5])
    make_run(f"{CNN}/4bit", "4bit", losses=[0.9, 0.5])
    (panel,) = load_panels(tmp_path)
    result = claims.race(panel)
    assert result is not None
    assert result.best == "4-bit"
    assert result.ratio > 1
    assert "1 of 1 panels" in verdict(tmp_path, "most cases").here


def test_the_floor_counts_by_either_loss(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{SORTED}/adaquant", losses=[1.0, 0.5])
    make_run(f"{SORTED}/2bit", "2bit", losses=[1.0, 0.6])
    assert verdict(tmp_path, "sorted labels").outcome == "partly reproduced"
    make_run(f"{SORTED}/4bit", "4bit", losses=[1.0, 0.4])
    assert verdict(tmp_path, "sorted labels").outcome == "not reproduced"


@pytest.mark.parametrize(
    ("ours", "sixteen", "rounds", "outcome"),
    [
        (0.04, 0.04, 1, "reproduced"),
        (1.0, 1.0, 1, "partly reproduced"),
        (1.0, 0.04, 1, "open"),  # they may meet in the rounds that are missing
        (1.0, 0.04, 600, "not reproduced"),
    ],
)
def test_accuracies_within_a_point_are_the_same(
    make_run: MakeRun, tmp_path: Path, ours: float, sixteen: float, rounds: int, outcome: str
) -> None:
    make_run(f"{CNN}/adaquant", losses=[ours] * rounds)  # the made-up accuracy is 92 % minus a quarter of the loss
    make_run(f"{CNN}/16bit", "16bit", losses=[sixteen] * rounds)
    assert verdict(tmp_path, "91.15%").outcome == outcome


def test_wire_bytes_of_all_clients_are_set_against_paper_bits_of_one(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(f"{CNN}/adaquant", losses=[1.0], clients=4)
    (panel,) = load_panels(tmp_path)
    last = panel.runs[0].history[-1]
    assert claims.wire_ratio(panel) == pytest.approx(4 * last["paper_bits"] / 8 / last["wire_bytes_up"])
