"""`auto` takes the smallest frame, and neither the codec nor the number of threads changes anything else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.frame import payload_size
from support.frames import some_vector

CODECS = ("fixed", "sparse", "dense")
EVERY_WIDTH = [1, 2, 3, 5, 100, 200, 255, 5000, 40_000, 65_535, *(2**bits - 1 for bits in range(3, 16))]


@pytest.mark.parametrize(
    ("kind", "s"),
    [
        ("gauss", 1), ("gauss", 65535), ("laplace", 40), ("heavy", 400), ("layers", 1), ("layers", 65535),
        ("mostly zero", 65535), ("zeros", 1), ("one", 400),
    ],
)  # fmt: skip
def test_auto_is_within_one_percent_of_the_smallest(kind: str, s: int) -> None:
    x = some_vector(kind, 400_000)
    frames = {codec: aq.compress(x, s, 1, codec) for codec in CODECS}
    auto = aq.compress(x, s, 1)
    assert payload_size(auto) <= 1.01 * min(map(payload_size, frames.values())) + 16
    assert auto == aq.encode(aq.quantize(x, s, 1))
    assert auto in frames.values()


@given(
    s=st.sampled_from(EVERY_WIDTH),
    kind=st.sampled_from(["gauss", "heavy", "mostly zero", "zeros", "one"]),
    d=st.integers(1, 20_000),
    pieces=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_every_codec_carries_the_same_levels(s: int, kind: str, d: int, pieces: int, seed: int) -> None:
    x = some_vector(kind, d, seed)
    cuts = np.unique(np.append(np.random.default_rng(seed).integers(1, d + 1, pieces), d))
    segments = None if pieces == 1 else np.diff(np.append(0, cuts))
    levels = aq.quantize(x, s, seed, segments)
    sums = set()
    for codec in ("auto", *CODECS):
        frame = aq.encode(levels, codec)
        assert frame == aq.compress(x, s, seed, codec, segments)
        assert aq.decode(frame, dimension=d) == levels
        assert aq.decode(frame).values.dtype == levels.values.dtype
        total = aq.Accumulator(d)
        total.add(frame, 0.3)
        total.add(frame, 0.7)
        sums.add(total.result().tobytes())
    assert len(sums) == 1


@given(
    seed=st.integers(0, 1000),
    order=st.sampled_from(["any", "sorted", "half"]),
    d=st.integers(1, 3000),
    density=st.sampled_from([0.02, 0.3, 0.6, 0.9, 1.0]),
    top=st.sampled_from([1, 2, 3, 4, 20, 300]),
)
def test_of_a_short_vector_of_any_order_auto_is_the_smallest(
    seed: int, order: str, d: int, density: float, top: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.integers(-top, top + 1, d) * (rng.random(d) < density)).astype(np.int16)
    values = {"any": values, "sorted": np.sort(values), "half": np.where(np.arange(d) < d // 2, values, 0)}[order]
    levels = aq.Levels(values.astype(np.int16), np.float32(1), top)
    assert len(aq.encode(levels)) == min(len(aq.encode(levels, codec)) for codec in CODECS)


def test_frames_and_sums_do_not_depend_on_the_number_of_threads(rng: np.random.Generator) -> None:
    d = 300_007
    x, wide = rng.standard_normal((2, d)).astype(np.float32)
    cases = [
        (x, 2, "sparse"),
        (x, 2, "fixed"),
        (wide, 400, "dense"),
        (x, 3, "auto"),
        (x, 4000, "dense"),
        (x, 1, "dense"),
    ]
    results = set()
    for threads in (1, 2, 5):
        aq.set_threads(threads)
        total, frames = aq.Accumulator(d), []
        for key, (vector, s, codec) in enumerate(cases):
            for segments in (None, [100_000, 200_007]):
                levels = aq.quantize(vector, s, key, segments)
                frames.append(aq.compress(vector, s, key, codec, segments))
                assert frames[-1] == aq.encode(levels, codec)
                assert aq.decode(frames[-1]) == levels
                total.add(frames[-1], 0.1)
        results.add((*frames, total.result().tobytes()))
    assert len(results) == 1
