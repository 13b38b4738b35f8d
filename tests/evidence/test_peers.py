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
from adaquantfl.quantizers.base import whole_levels
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


def test_a_search_that_begins_from_earlier_ones_meets_its_target_too(x: peer_match.Vector) -> None:
    curve = peer_match.curves(x, [len(x)])[0]
    for target in (1e-2, 1e-3, 3e-3, 1e-2):
        small, fixed = curve.matches(target, biased=False)
        assert 0.9 * target < small.error <= target
        assert fixed.error <= small.error
        assert fixed.sender.s + 1 == 2 ** whole_levels(small.sender.s)[0].bit_length()  # all that there is room for


def test_nearest_is_only_tried_against_methods_that_are_biased_too(x: peer_match.Vector) -> None:
    assert not any("nearest" in match.sender.choice.title for match in all_matches(x, 1e-3))
    fair = [match for curve in peer_match.curves(x, [len(x)]) for match in curve.matches(1e-3, biased=True)]
    assert any("nearest" in match.sender.choice.title for match in fair)


def test_an_error_out_of_reach_has_no_match(x: peer_match.Vector) -> None:
    assert all_matches(x, 1e-15) == []


def test_a_frame_scaled_down_by_its_receiver_has_the_error_that_is_promised(x: peer_match.Vector) -> None:
    frame = aq.compress(x, 20, peer_match.KEY)
    plain, error, weight = peer_match.errors_of(x, frame)
    total = aq.Accumulator(len(x))
    total.add(frame, weight)
    assert error == pytest.approx(peer_worker.relative_error(x, total.result()), rel=1e-4)
    assert error == pytest.approx(plain / (1 + plain), rel=0.05)  # the noise of an unbiased rounding, shrunk


def test_a_small_error_does_not_drown_in_large_sums(rng: np.random.Generator) -> None:
    long = rng.standard_normal(2_000_000, dtype=np.float32)
    frame = aq.compress(long, 50, peer_match.KEY, norm="linf")
    _, error, weight = peer_match.errors_of(long, frame)
    exact = weight * aq.decode(frame).dequantize().astype(np.float64) - long
    assert error == pytest.approx(np.sum(exact**2) / np.sum(long.astype(np.float64) ** 2), rel=1e-4)


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


def test_ratios_are_of_the_same_turn() -> None:
    def turn(pace: float) -> dict[str, dict[str, float]]:
        both = {"copy": pace, "encode": 4 * pace, "decode": 3 * pace}
        return {"peer": both, "small": {"copy": pace, "encode": 2 * pace, "decode": 6 * pace}}

    found = peers.summary([turn(1.0), turn(10.0), turn(2.0)])  # the machine was busy in the second
    assert (found["small"]["encode_times"], found["small"]["decode_times"]) == (2.0, 0.5)
    assert found["peer"]["encode"] == 8.0


def test_a_case_sends_each_tensor_by_itself_and_adds_its_bytes_up(rng: np.random.Generator) -> None:
    x = rng.standard_normal(20_000, dtype=np.float32)
    method = next(m for m in peer_methods.METHODS if m.title == "numpy: int8 of the largest magnitude")
    whole, parts = (peer_worker.Case(method, x, lengths).figures() for lengths in ([20_000], [15_000, 5000]))
    assert (whole["bytes"], parts["bytes"]) == (20_004, 20_008)
    step = np.abs(x).max() / 127
    assert whole["error"] == pytest.approx(step**2 / 12, rel=0.05)  # uniform noise within a step; x has variance 1


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
