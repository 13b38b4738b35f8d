"""What every quantizer of the registry has in common, whatever it does to a vector."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.accumulator import check_frame
from adaquantfl.codecs.inspection import describe
from adaquantfl.quantizers.registry import find, names

EVERY = [(name, norm) for name in names() for norm in find(name).tags]
LEVELS = {"terngrad": 1, "stc": 20, "natural": 9, "eden": 3}  # s; 5 for the others
SEGMENTS = [700, 1, 300, 2, 997]


def quantize(x: np.ndarray, name: str, norm: str, segments: list[int] | None = None, key: int = 7) -> aq.Levels:
    return aq.quantize(x, LEVELS.get(name, 5), key, segments, quantizer=name, norm=norm or None)


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_t(3, 2000) * 1e-3).astype(np.float32)


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_every_codec_carries_every_quantizer_and_frames_are_added_up(name: str, norm: str, x: np.ndarray) -> None:
    for segments in (None, SEGMENTS):
        levels = quantize(x, name, norm, segments)
        assert np.abs(levels.values.astype(np.int64)).max() <= levels.top
        for codec in ("fixed", "sparse", "dense"):
            assert aq.decode(aq.encode(levels, codec), len(x)) == levels
        frame = aq.compress(x, LEVELS.get(name, 5), 7, "auto", segments, quantizer=name, norm=norm or None)
        assert frame == aq.encode(levels)
        total, floats = aq.Accumulator(len(x)), levels.dequantize().astype(np.float64)
        for weight in (0.5, 0.25):
            total.add(frame, weight)
        np.testing.assert_allclose(total.result(), 0.75 * floats, rtol=1e-5, atol=1e-6 * np.abs(floats).max())
        checked = check_frame(frame, 1.0, len(x))
        assert checked.norm == pytest.approx(np.linalg.norm(x if norm == "l2" else floats), rel=1e-5)
        assert checked.decoded_norm == pytest.approx(np.linalg.norm(floats), rel=1e-5)
        assert name in describe(frame)


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_threads_change_nothing(name: str, norm: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal(600_011).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        aq.set_threads(threads)
        levels = quantize(x, name, norm, [400_000, 200_011])
        results.append((levels, levels.dequantize().tobytes()))
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_zeros_and_single_elements_come_back_and_no_others_are_taken(name: str, norm: str) -> None:
    assert not quantize(np.zeros(300, dtype=np.float32), name, norm).dequantize().any()
    one = np.array([-2.5e-3], dtype=np.float32)
    if name != "lattice":  # which keeps part of its dither
        np.testing.assert_allclose(quantize(one, name, norm).dequantize(), one, rtol=1e-6)
    for bad, word in (([1.0, np.nan], "NaN"), ([np.inf, 0.0], "infinite"), ([], "empty")):
        with pytest.raises(aq.QuantizeError, match=word):
            quantize(np.array(bad, dtype=np.float32), name, norm)
    padded = np.concatenate([one, np.zeros(3, dtype=np.float32)])
    assert np.isfinite(quantize(padded, name, norm, [1, 3]).dequantize()).all()


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_the_size_of_the_vector_only_scales_the_result(name: str, norm: str, x: np.ndarray) -> None:
    small, large = (quantize(x * np.float32(2.0**k), name, norm) for k in (-60, 60))
    np.testing.assert_array_equal(small.values, large.values)
    np.testing.assert_allclose(small.dequantize() * 2.0**60, large.dequantize() * 2.0**-60, rtol=1e-6)


@pytest.mark.parametrize(("name", "s", "off"), [("nearest", 1, 0.05), ("fitted", 1, 0.1), ("stc", 20, 0.2)])
def test_error_feedback_sends_everything_in_the_end(name: str, s: int, off: float, rng: np.random.Generator) -> None:
    update, left, sent = rng.standard_normal(500).astype(np.float32), np.zeros(500, np.float32), np.zeros(500)
    for key in range(300):
        levels = aq.quantize(update + left, s, key, quantizer=name)
        left = levels.remainder(update + left)
        sent += levels.dequantize()
    np.testing.assert_allclose(sent + left, 300 * update, rtol=1e-3, atol=1e-2)
    assert np.linalg.norm(sent / 300 - update) < off * np.linalg.norm(update)


@pytest.mark.parametrize("name", [name for name in names() if not find(name).traits.linear])
def test_scales_from_which_values_would_leave_float32_are_refused(name: str) -> None:
    with pytest.raises(aq.QuantizeError, match=r"Scale (the vector|it) down"):
        aq.quantize(np.full(64, 1e38, dtype=np.float32), 3, 1, quantizer=name)
    levels = aq.quantize(np.ones(64, dtype=np.float32), 3, 1, quantizer=name)
    with pytest.raises(aq.FrameError, match="beyond"):
        aq.encode(replace(levels, scale=levels.scale * np.float32(1.8e38 / levels.scales.max())))


@pytest.mark.parametrize(("name", "norm"), EVERY)
@pytest.mark.parametrize("d", [1, 3, 64])
def test_no_element_decodes_to_more_than_the_bound_in_any_corner(
    name: str, norm: str, d: int, rng: np.random.Generator
) -> None:
    traits, x = find(name).traits, rng.standard_normal(d).astype(np.float32)
    for s in {min(s, traits.most) for s in (1, 3, traits.most)}:
        for stretch in [1.0, 1.7, 2.0**20] if traits.stretches else [1.0]:
            levels = aq.quantize(x, s, 7, stretch=stretch, quantizer=name, norm=norm or None)
            large = replace(levels, scale=np.full_like(levels.scale, 2.0**90))
            if levels.number is not None:
                large = replace(large, number=traits.number.most)
            for edge in (levels, large):
                for values in (np.full(d, edge.top), np.full(d, -edge.top), rng.integers(-edge.top, edge.top + 1, d)):
                    with np.errstate(over="raise"):
                        found = replace(edge, values=values.astype(np.int32)).dequantize()
                    assert np.abs(found).max() <= edge.bound * (1 + 1e-5)


REFUSED = [
    ({"s": 3, "quantizer": "eden", "norm": "l2"}, "no norm"),
    ({"s": 17, "quantizer": "eden"}, "1 to 16"),
    ({"s": 1, "quantizer": "eden", "stretch": 2.0}, "no steps"),
    ({"s": 2, "quantizer": "terngrad"}, "1 to 1"),
    ({"s": 1, "quantizer": "terngrad", "norm": "l2"}, "'linf'"),
    ({"s": 128, "quantizer": "natural"}, "1 to 127"),
    ({"s": 4, "quantizer": "stc", "stretch": 2.0}, "no steps"),
    ({"s": 4, "quantizer": "stc", "norm": "linf"}, "no norm"),
    ({"s": 4, "norm": "l1"}, "'l2' or 'linf'"),
    ({"s": 4, "quantizer": "centriod"}, "Did you mean 'centroid'"),
    ({"s": 1, "quantizer": "centroid", "stretch": 2.0**21}, "at most"),
    *(({"s": 1, "quantizer": name, "stretch": 0.5}, "from 1 on") for name in ("rotated", "lattice", "centroid")),
    *(({"s": 1, "quantizer": name, "key": -1}, "stream_key") for name in ("rotated", "eden", "natural")),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_settings_that_make_no_sense_are_refused_with_a_sentence(call: dict[str, object], word: str) -> None:
    for function in (aq.quantize, aq.compress):
        with pytest.raises(aq.QuantizeError, match=word):
            function(np.ones(4, dtype=np.float32), **{"key": 0} | call)


def altered(name: str, **fields: object) -> aq.Levels:
    levels = aq.quantize(np.arange(-32, 32, dtype=np.float32), 3, 1, quantizer=name)
    return replace(levels, **fields)


LIES = [
    (aq.Levels(np.array([4], dtype=np.int8), np.float32(1), 3), "-s to s"),
    (aq.Levels(np.array([1.0]), np.float32(1), 3), "signed integers"),
    (aq.Levels(np.array([1], dtype=np.int8), np.float32(np.nan), 3), "NaN"),
    (aq.Levels(np.array([1], dtype=np.int8), np.float32(-1), 3), "negative"),
    (aq.Levels(np.array([1, 1], dtype=np.int8), np.array([1, 2], dtype=np.float32), 3), "2 scales"),
    (altered("lattice", key=None), "rule"),
    (altered("lattice", key=2**64), "key"),
    (altered("centroid", number=None), "stretch"),
    (altered("centroid", number=0.5), "stretch"),
    (altered("centroid", number=np.nan), "stretch"),
    (altered("eden", segments=np.array([60, 4]), scale=np.ones(2, dtype=np.float32)), "rule BLOCKS"),
    (altered("stc", key=1), "rule"),
    (altered("stc", norm="l2"), "norm"),
    (altered("lattice", values=np.full(64, 9, dtype=np.int8)), "-8 to 8"),
]


@pytest.mark.parametrize(("levels", "word"), LIES)
def test_levels_put_together_wrongly_are_not_encoded(levels: aq.Levels, word: str) -> None:
    with pytest.raises((aq.FrameError, aq.QuantizeError), match=word):
        aq.encode(levels)


def test_inspection_shows_what_a_receiver_needs(x: np.ndarray) -> None:
    text = describe(aq.compress(x, 3, 0xABCDEF, quantizer="centroid", stretch=1.5))
    for line in (
        "quantizer    centroid (tag 7)",
        "stretch      1.5",
        "stream key   0x0000000000abcdef",
        "may reach 32",
    ):
        assert line in text
    assert "linf norm" in describe(aq.compress(x, 3, 1, norm="linf"))
