"""The benchmark beside other libraries: its arithmetic, without the network."""

from __future__ import annotations

import doctest
from types import ModuleType

import numpy as np
import pytest

import adaquantfl as aq
import peer_env
import peer_match
import peer_methods
import peer_worker
import peers
from evidence.pages import peers as page


@pytest.fixture
def x(rng: np.random.Generator) -> peer_match.Vector:
    """A short vector, so that a search is fast."""
    return rng.standard_normal(1000, dtype=np.float32)


def all_matches(x: peer_match.Vector, target: float) -> list[peer_match.Match]:
    return [match for curve in peer_match.curves(x, [len(x)]) for match in curve.matches(target, biased=False)]


def test_the_coarsest_levels_meet_the_target_and_slightly_coarser_ones_do_not(x: peer_match.Vector) -> None:
    target = 1e-3
    found = all_matches(x, target)
    assert {match.sender.codec for match in found} == {"auto", "fixed"}
    for match in found:
        assert 0.9 * target < match.error <= target or match.sender.codec == "fixed"
        assert match.error <= target
        assert match.sender.weight == 1.0


def test_a_frame_scaled_down_by_its_receiver_has_the_error_that_is_promised(x: peer_match.Vector) -> None:
    frame = aq.compress(x, 20, peer_match.KEY)
    plain, error, weight = peer_match.errors_of(x, frame)
    total = aq.Accumulator(len(x))
    total.add(frame, weight)
    assert error == pytest.approx(peer_worker.relative_error(x, total.result()), rel=1e-4)
    assert error == pytest.approx(plain / (1 + plain), rel=0.05)  # the noise of an unbiased rounding, shrunk


def test_the_smallest_match_wins_and_the_fastest_of_those_no_larger_than_the_peer(
    x: peer_match.Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = all_matches(x, 1e-3)
    smallest = min(match.bytes for match in found)
    limit = sorted(match.bytes for match in found)[len(found) // 2]
    seconds = {id(match.sender): 1.0 + number for number, match in enumerate(reversed(found))}  # the last is fastest
    monkeypatch.setattr(peer_match.Timed, "both", lambda timed: seconds[id(timed.sender)])
    chosen = peer_match.picks(x, found, limit)
    assert chosen["small"].bytes == smallest
    assert chosen["fast"] is [match for match in found if match.bytes <= limit][-1]
    assert "fast" not in peer_match.picks(x, found, smallest - 1)


@pytest.mark.parametrize(
    "name", [m.title for m in peer_methods.METHODS if m.peer == "python"], ids=lambda name: name.replace(" ", "-")
)
def test_a_lossless_coder_gives_the_levels_back(x: peer_match.Vector, name: str) -> None:
    method = next(m for m in peer_methods.METHODS if m.title == name)
    data = aq.quantize(x, 3, peer_match.KEY).values if method.integers else x
    assert peer_worker.Case(method, data, [len(x)]).figures()["error"] == 0


@pytest.mark.parametrize("module", [peer_env, peer_match, peer_worker, peers], ids=lambda module: module.__name__)
def test_the_examples_in_the_benchmark_hold(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_every_comparison_is_at_no_larger_an_error() -> None:
    for row in page.read()["rows"]:
        for ours in row.get("ours", {}).values():
            assert ours["error"] <= row["error"]
