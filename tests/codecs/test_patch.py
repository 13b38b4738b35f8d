"""Lossless patches of weights: any bits come back, few bits per change, and a wrong base is refused unharmed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq

TYPES = {"float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


def typed(patterns: np.ndarray, kind: str) -> np.ndarray:
    """Bit patterns as an array of this type; bfloat16 as uint16."""
    return patterns if kind == "bfloat16" else patterns.view(kind)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 2**32 - 1), st.integers(0, 3000), st.floats(0, 1))
def test_any_two_arrays(kind: str, seed: int, size: int, share: float) -> None:
    rng, bits = np.random.default_rng(seed), TYPES[kind]
    old, new = (rng.integers(0, np.iinfo(bits).max, size, dtype=bits, endpoint=True) for _ in range(2))
    new = np.where(rng.random(size) < share, new, old)
    assert same(aq.patch(typed(old, kind), aq.diff(typed(old, kind), typed(new, kind))), typed(new, kind))


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_special_values_and_shapes(kind: str) -> None:
    with np.errstate(over="ignore"):
        some = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504, 1.0]).astype(kind)
    old, new = np.repeat(some, 9).reshape(9, 9), np.tile(some, 9).reshape(9, 9)
    assert same(aq.patch(old, aq.diff(old, new)), new)
    assert same(aq.patch(old.T, aq.diff(old.T, new.T)), np.ascontiguousarray(new.T))


def trained(share: float, size: int = 400_000) -> tuple[np.ndarray, np.ndarray]:
    """bfloat16 weights, and those after a step that moves this share of them: 19 of 20 to a neighbour."""
    rng = np.random.default_rng(4)
    old = (rng.normal(0, 0.02, size).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    far = np.where(rng.random(size) < 0.95, 1, 2) * rng.choice([-1, 1], size)
    return old, np.where(rng.random(size) < share, old + far, old).astype(np.uint16)


@pytest.mark.parametrize(("share", "bits"), [(0.01, 10.0), (0.04, 8.3)])
def test_a_changed_weight_takes_few_bits(share: float, bits: float) -> None:
    old, new = trained(share)
    assert 8 * len(aq.diff(old, new)) / np.count_nonzero(old != new) <= bits


def test_a_real_step_of_adamw_in_bfloat16_takes_few_bits() -> None:
    torch = pytest.importorskip("torch")  # the rest of the core is tested without it
    torch.manual_seed(0)
    with torch.random.fork_rng():
        master = torch.nn.Parameter(torch.randn(300_000) * 0.02)
        optimizer = torch.optim.AdamW([master], lr=3e-6)
        versions = []
        for _ in range(3):
            master.grad = torch.randn(300_000)
            optimizer.step()
            versions.append(master.detach().to(torch.bfloat16).view(torch.uint16).numpy().copy())
    old, new = versions[1:]
    changed = np.count_nonzero(old != new)
    assert 0.001 < changed / len(old) < 0.1
    difference = aq.diff(old, new)
    assert same(aq.patch(old, difference), new)
    density = changed / len(old)
    assert 8 * len(difference) / changed < 2.6 - np.log2(density) + 1  # a gap's entropy, a sign, and headers


def test_a_patch_never_takes_more_than_the_array() -> None:
    rng = np.random.default_rng(1)
    for bits in (np.uint16, np.uint32):
        old, new = (rng.integers(0, np.iinfo(bits).max, 10_000, dtype=bits) for _ in range(2))
        kind = "float16" if bits is np.uint16 else "float32"
        assert len(aq.diff(old.view(kind), new.view(kind))) <= old.nbytes + 22


def test_it_works_in_place_and_into_another_array() -> None:
    old, new = trained(0.02, 50_000)
    difference, kept, out = aq.diff(old, new), old.copy(), np.empty_like(old)
    assert aq.patch(old, difference, out=out) is out
    assert same(out, new)
    assert same(old, kept)
    assert aq.patch(old, difference, out=old) is old
    assert same(old, new)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_base_that_is_another_one_is_refused_and_stays_as_it_is(kind: str) -> None:
    rng = np.random.default_rng(3)
    old = rng.normal(size=20_000).astype(kind)
    new = np.where(rng.random(20_000) < 0.02, old * np.float16(1.01), old).astype(kind)
    wrong = new.copy()
    with pytest.raises(aq.FrameError, match=r"belongs to other weights|beyond float"):
        aq.patch(wrong, aq.diff(old, new), out=wrong)
    assert same(wrong, new)
    edge = np.full(20_000, np.nan, dtype=kind)
    with pytest.raises(aq.FrameError):
        aq.patch(edge, aq.diff(old, new), out=edge)
    assert np.isnan(edge).all()


def test_damaged_bytes_are_refused() -> None:
    old, new = trained(0.02, 3000)
    data = aq.diff(old, new)
    for cut in (0, 3, 21, 22, 60, len(data) - 1):
        with pytest.raises(aq.FrameError):
            aq.patch(old, data[:cut])
    for place in range(len(data)):
        with pytest.raises(aq.FrameError):
            aq.patch(old, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (np.zeros(3), np.zeros(3), "old is float64 of shape"),
        (np.zeros(3, np.float32), np.zeros(4, np.float32), "of one type and one shape"),
        (np.zeros(3, np.float32), np.zeros(3, np.float16), "of one type and one shape"),
        ([1.0], np.zeros(1, np.float32), "old is a list"),
    ],
)
def test_other_arrays_are_refused_with_a_sentence(old: Any, new: Any, words: str) -> None:
    with pytest.raises(aq.QuantizeError, match=words):
        aq.diff(old, new)


def test_an_array_that_does_not_fit_is_named() -> None:
    old, new = trained(0.02, 3000)
    data = aq.diff(old, new)
    with pytest.raises(aq.FrameError, match="3,000 elements of bfloat16, but old is uint16 of shape"):
        aq.patch(old[:-1], data)
    with pytest.raises(aq.QuantizeError, match="expected a contiguous array that can be written, like old"):
        aq.patch(old, data, out=np.empty(6000, np.uint16)[::2])


def test_bfloat16_of_ml_dtypes_keeps_its_type() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    old, new = (one.view(bfloat16) for one in trained(0.02, 3000))
    back = aq.patch(old, aq.diff(old, new))
    assert back.dtype == bfloat16
    assert same(back, new)
