"""mixed: the form of each block with the least error at equal bytes; no promise of unbiasedness that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.forms import LATTICE, WIDTHS, width
from adaquantfl.quantizers.registry import find
from adaquantfl.rules import Cosine, CostAware, DAdaQuant
from adaquantfl.threads import set_threads
from support.rounds import reply_of

N = 1 << 16


def sparse(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.01, rng.standard_normal(n), 0.0)


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "gauss": lambda rng, n: rng.standard_normal(n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "student": lambda rng, n: rng.standard_t(3, n),
    "sparse": sparse,
}


def error_at(x: np.ndarray, bits: float, name: str) -> float:
    """The relative squared error of the finest levels whose frame has at most this many bits per element."""
    kind, low, high = find(name), 1e-3, 1e5

    def levels(s: float) -> aq.Levels:
        whole, stretch = kind.levels_for(s, np.array([len(x)]))
        return aq.quantize(x, whole, 5, None, stretch, kind)

    for _ in range(24):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if 8 * len(aq.encode(levels(middle))) > bits * len(x) else (middle, high)
    return kind.drawn_error(x, levels(low))


@pytest.mark.parametrize("bits", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "sparse"])
def test_at_equal_bytes_it_errs_no_more_than_the_best_of_the_others(
    shape: str, bits: float, rng: np.random.Generator
) -> None:
    x = SHAPES[shape](rng, N).astype(np.float32)
    best = min(error_at(x, bits, name) for name in ("uniform", "dithered", "lattice", "centroid"))
    assert error_at(x, bits, "mixed") < 1.06 * best


def test_what_centroid_loses_on_a_sparse_vector_is_not_lost(rng: np.random.Generator) -> None:
    x = sparse(rng, N).astype(np.float32)
    assert error_at(x, 0.1, "centroid") > 5
    assert error_at(x, 0.1, "mixed") < 1.3 * error_at(x, 0.1, "uniform") < 0.06


def test_blocks_of_one_vector_have_different_forms(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.standard_normal(4096), sparse(rng, 4096), rng.standard_normal(300)]).astype(np.float32)
    s, stretch = find("mixed").levels_for(20.0, np.array([4096, 4096, 300]))
    levels = aq.quantize(x, s, 1, [4096, 4096, 300], stretch, "mixed")
    assert levels.numbers is not None
    rotated = levels.numbers < 0
    assert rotated[0]
    assert not rotated[levels.offsets[:-1] == 4096].any()
    assert aq.decode(aq.encode(levels), len(x)) == levels


def bias_share(x: np.ndarray, name: str, s: float, lengths: list[int], keys: int) -> float:
    """The squared bias in the last segment as a share of its energy, less what is left of the noise."""
    kind, last = find(name), slice(sum(lengths[:-1]), None)
    whole, stretch = kind.levels_for(s, np.array(lengths), x, balanced=True)
    seen = np.array(
        [aq.quantize(x, whole, key, lengths, stretch, kind).dequantize()[last] for key in range(keys)], dtype=np.float64
    )
    noise = seen.var(axis=0, ddof=1).sum() / keys
    return float((np.sum((seen.mean(axis=0) - x[last]) ** 2) - noise) / np.sum(x[last].astype(np.float64) ** 2))


def test_a_small_tensor_with_few_large_elements_comes_back_unbiased(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.standard_normal(N), 0.05 * rng.standard_normal(16)]).astype(np.float32)
    x[N + 3], x[N + 10] = 1.0, 0.3
    assert bias_share(x, "centroid", 0.1, [N, 16], 300) > 0.02
    assert abs(bias_share(x, "mixed", 0.1, [N, 16], 300)) < 0.002


@pytest.mark.parametrize("k", [500, 1200, 1500, 1700])
def test_the_bias_of_a_rotated_block_is_far_below_its_error(k: int, rng: np.random.Generator) -> None:
    # The worst that is rotated: 64 elements with nearly a 64th of the energy each.
    x = (0.01 * rng.standard_normal(1024)).astype(np.float32)
    x[:64] = np.linspace(0.8, 1.0, 64)
    blocks = 4000
    values = aq.quantize(np.tile(x, blocks), 1, 3, [1024] * blocks, width(k), "centroid").dequantize()
    seen = values.reshape(blocks, -1).astype(np.float64)
    noise = seen.var(axis=0, ddof=1).sum()
    bias = np.sum((seen.mean(axis=0) - x) ** 2) - noise / blocks
    assert bias < 0.01 * noise


def test_small_tensors_are_quantized_finely(rng: np.random.Generator) -> None:
    x = rng.standard_normal(N + 10).astype(np.float32)
    s, stretch = find("mixed").levels_for(2.0, np.array([N, 10]), x, balanced=True)
    back = aq.quantize(x, s, 1, [N, 10], stretch, "mixed").dequantize()
    assert np.sum((back[N:] - x[N:]) ** 2) < 0.05 * np.sum(x[N:] ** 2)


def test_levels_do_not_depend_on_the_threads(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.standard_normal(200_000), sparse(rng, 100_000)]).astype(np.float32)
    found = []
    for threads in (1, 3):
        set_threads(threads)
        found.append(aq.quantize(x, 40, 2, [200_000, 100_000], 1.0, "mixed"))
    set_threads(None)
    assert found[0] == found[1]
    np.testing.assert_array_equal(found[0].dequantize(), found[1].dequantize())


@pytest.mark.parametrize("x", [[0.0] * 600, [3.0], [1e-38] * 600, [1e-44] * 600, [0.0] * 599 + [1.0]])
def test_odd_vectors_survive(x: list[float]) -> None:
    vector = np.array(x, dtype=np.float32)
    levels = aq.quantize(vector, 50, 1, quantizer="mixed")
    assert aq.decode(aq.encode(levels)) == levels
    np.testing.assert_allclose(levels.dequantize(), vector, atol=1.2 * np.linalg.norm(vector.astype(np.float64)) / 50)


def hand_made(forms: list[float], lengths: list[int]) -> aq.Levels:
    numbers, values = np.array(forms, dtype=np.float32), np.zeros(sum(lengths), dtype=np.int8)
    return aq.Levels(values, np.ones(len(lengths), np.float32), 1, np.array(lengths), "mixed", "", 7, numbers)


@pytest.mark.parametrize(
    ("forms", "lengths", "reason"),
    [
        ([97], [8], "form"),
        ([126], [8], "form"),
        ([0.5], [8], "form"),
        ([LATTICE + 1], [8], "form"),
        ([-WIDTHS[-1] - 1], [256], "form"),
        ([-5], [128], "2\\^k"),
        ([-5], [300], "2\\^k"),
        ([0, -5], [256, 257], "2\\^k"),
    ],
)
def test_forms_that_mean_nothing_are_refused(forms: list[float], lengths: list[int], reason: str) -> None:
    with pytest.raises(aq.FrameError, match=reason):
        aq.encode(hand_made(forms, lengths))


def test_a_server_takes_the_cuts_that_a_sender_can_make_and_no_other(rng: np.random.Generator) -> None:
    kind, asked = find("mixed"), np.array([1000, 24])
    assert kind.can_send(np.array([512, 488, 24]), asked, 1024)
    assert kind.can_send(np.array([1024]), None, 1024)
    assert not kind.can_send(np.array([512, 512]), asked, 1024)
    assert not kind.can_send(None, asked, 1024)
    assert not kind.can_send(np.array([500, 500, 24]), asked, 1024), "blocks have 2^k elements"
    assert not kind.can_send(np.full(1024, 1), None, 1024), "many tiny segments take long to decode"


@pytest.mark.parametrize("rule", [aq.AdaQuant(s0=2), Cosine(0.3, 2.0, 4), CostAware(), aq.Auto(), DAdaQuant()])
def test_it_goes_with_every_rule(rule: aq.Rule, rng: np.random.Generator) -> None:
    weights = {"weight": np.zeros((40, 30), dtype=np.float32), "bias": np.zeros(7, dtype=np.float32)}
    target = {name: rng.standard_normal(array.shape).astype(np.float32) for name, array in weights.items()}
    server, client = aq.Server(weights, rule=rule, quantizer="mixed"), aq.Client(0)
    for _ in range(4):
        given = client.open(server.open([0])[0])
        trained = {name: array + np.float32(0.5) * (target[name] - array) for name, array in given.items()}
        reply = client.reply(trained, loss=1.0, examples=10, probe=lambda weights: 1.0)
        server.receive(0, reply)
        server.close()
    frame = aq.decode(reply_of(client, reply).frame)
    assert frame.quantizer == "mixed"
    with pytest.raises(aq.FrameError):
        aq.encode(replace(frame, numbers=np.full_like(frame.numbers, 99)))


def test_the_finest_levels_fit_a_frame(rng: np.random.Generator) -> None:
    x = rng.standard_normal(300).astype(np.float32)
    levels = aq.quantize(x, 65_535, 1, quantizer="mixed")
    assert aq.decode(aq.encode(levels)) == levels
    np.testing.assert_allclose(levels.dequantize(), x, atol=np.linalg.norm(x) / 30_000)
