"""A decoder written from docs/wire-format.md alone and the library's read the same frames and refuse the same frames.

A frame on which they differ is a fault of the library or of the specification.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import adaquantfl as aq
from adaquantfl.quantizers.registry import find, names
from support import reference_decoder as reference
from support import reference_quantizers
from support.as_read import as_read
from support.frames import sealed
from support.reference_decoder import Decoded

CODECS = ["fixed", "sparse", "dense", "auto"]
SHAPES: dict[str, Callable[[np.random.Generator, int, int], npt.NDArray[np.floating | np.integer]]] = {
    "gauss": lambda rng, d, s: spread(rng.standard_normal(d), s),
    "heavy": lambda rng, d, s: spread(rng.standard_cauchy(d), s),
    "zeros": lambda rng, d, s: np.zeros(d),
    "single": lambda rng, d, s: np.where(np.arange(d) == rng.integers(d), rng.choice([-s, s]), 0),
    "top": lambda rng, d, s: rng.choice([-s, s], d),
    "uniform": lambda rng, d, s: rng.integers(-s, s + 1, d),
}
EDGES = [0, 1, 2, 3, 15, 16, 17, 32, 33, 127, 128, 129, 254, 255]
LARGEST = 300_000  # a mutated header may ask for 2^32 elements; above this the receiver says what it expects


def spread(x: npt.NDArray[np.float64], s: int) -> npt.NDArray[np.float64]:
    return np.rint(x / np.abs(x).max() * s)


def draw_segments(rng: np.random.Generator, d: int) -> npt.NDArray[np.int64] | None:
    kind = rng.choice(["whole", "buckets", "list"])
    if kind == "whole":
        return None
    if kind == "buckets":
        return aq.bucket_lengths(d, int(rng.integers(max(1, d // 50), d + 1)))
    cuts = np.unique(rng.integers(1, d + 1, 6))
    return np.diff(cuts[cuts < d], prepend=0, append=d)


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """How many frames pass through the reference decoder, which is slow: in the fast tests, and in the slow ones."""
    return pytest.mark.parametrize("frames", [few, pytest.param(many, marks=pytest.mark.slow)])


def draw_dimension(rng: np.random.Generator, frames: int) -> int:
    """Below a block of the fixed-length code in the fast tests, so that any s compiles nothing."""
    return int(np.exp(rng.uniform(0, np.log(1000 if frames < 100 else 2000))))


def draw_levels(rng: np.random.Generator, d: int, shape: str | None = None, s: int | None = None) -> aq.Levels:
    if s is None:
        s = int(np.exp(rng.uniform(0, np.log(65_536)))) if rng.random() < 0.8 else int(rng.choice([1, 2, 3, 65_535]))
    values = SHAPES[shape or str(rng.choice(list(SHAPES)))](rng, d, s).astype(np.int32)
    segments = draw_segments(rng, d)
    scales = np.float32(rng.exponential()) if segments is None else rng.exponential(size=len(segments))
    return aq.Levels(values, np.asarray(scales, dtype=np.float32)[()], s, segments)


def by_library(frame: bytes, dimension: int | None = None) -> Decoded | list[float] | None:
    """What the library reads; None where it refuses."""
    try:
        if frame[5] == 255:
            return aq.decode_float32(frame, dimension).tolist()
        return as_read(aq.decode(frame, dimension))
    except aq.FrameError:
        return None


def by_reference(frame: bytes, dimension: int | None = None) -> Decoded | list[float] | str:
    """What the specification reads; the reason where it refuses."""
    try:
        return (reference.decode_float32 if frame[5] == 255 else reference.decode)(frame, dimension)
    except ValueError as reason:
        return str(reason)


# Frames in order


@few_or_many(10, 1000)
@pytest.mark.parametrize("codec", CODECS)
def test_both_decoders_read_what_was_encoded(codec: str, frames: int, rng: np.random.Generator) -> None:
    for _ in range(frames):
        levels = draw_levels(rng, draw_dimension(rng, frames))
        frame = aq.encode(levels, codec)
        assert reference.decode(frame) == by_library(frame) == as_read(levels)


@pytest.mark.parametrize("codec", CODECS[:3])
def test_both_decoders_read_three_blocks_or_chunks(codec: str, rng: np.random.Generator) -> None:
    levels = draw_levels(rng, {"fixed": 2049}.get(codec, 131_073), "heavy", s=255)
    frame = aq.encode(levels, codec)
    assert reference.decode(frame, levels.dimension) == by_library(frame) == as_read(levels)


@pytest.mark.parametrize(("name", "norm"), [(name, norm) for name in names() for norm in find(name).tags])
def test_both_decoders_make_the_same_floats(name: str, norm: str, rng: np.random.Generator) -> None:
    s = {"terngrad": 1, "stc": 9, "natural": 12}.get(name, 7)
    for client, segments in enumerate((None, [100, 1, 27, 172], [128, 128, 44])):
        x = (rng.standard_t(2, 300) * 10.0 ** rng.integers(-9, 9)).astype(np.float32)
        levels = aq.quantize(x, s, aq.stream_key(1, 2, client), segments, quantizer=name, norm=norm or None)
        read = reference.decode(aq.encode(levels))
        assert read == as_read(levels)
        ours = levels.dequantize()
        np.testing.assert_allclose(ours, reference_quantizers.floats(read), rtol=1e-5, atol=2e-6 * np.abs(ours).max())


def test_the_sparse_encoder_chooses_the_chunks_of_the_specification(rng: np.random.Generator) -> None:
    for d in (1, 65_536, 65_537, 200_000, 1_500_000):
        for count in (0, 1, d // 4096, d // 256, d // 33, d // 17, d // 2):
            values = np.zeros(d, dtype=np.int8)
            values[rng.choice(d, count, replace=False)] = 1
            frame = aq.encode(aq.Levels(values, np.float32(1), 1), "sparse")
            assert frame[40] == next(c for c in range(16, 33) if count << c >= 4096 * d or 1 << c >= d)


# Frames that somebody altered, with the checksum made right


def by_hand(body: bytes = b"\0", scales: tuple[float, ...] = (1.0,), segments: bytes = b"", **fields: int) -> bytes:
    """A frame of four levels, s = 1, in codec fixed, but for what the caller says."""
    header = {"version": 1, "quantizer": 0, "codec": 0, "layout": 0, "s": 1, "n": len(scales), "d": 4} | fields
    head = (
        struct.pack("<4s4B2I2Q", b"AQFL", *header.values(), len(body))
        + segments
        + struct.pack(f"<{len(scales)}f", *scales)
    )
    return sealed(head + bytes(-len(head) % 8) + body + bytes(4))


def float32(**fields: Any) -> bytes:
    """A frame of four float32 zeros, but for what the caller says."""
    return by_hand(**{"body": bytes(16), "scales": (), "quantizer": 255, "codec": 255, "s": 0} | fields)


def dense(table: str, streams: bytes = struct.pack("<4I", *[1 << 15] * 4), d: int = 4) -> bytes:
    head = bytes.fromhex(table)
    return by_hand(head + bytes(-len(head) % 4) + streams, codec=2, d=d)


def mutated(frame: bytes, rng: np.random.Generator) -> bytes:
    """One or two edits of the header, the scales, the body's start or the whole body."""
    data = bytearray(frame[:-4])
    (size,) = struct.unpack_from("<Q", data, 24)
    body = len(data) - size
    where = {
        "header": (5, 32),
        "scales": (32, body),
        "directory": (body, min(body + 24, len(data))),
        "body": (body, len(data)),
    }
    for _ in range(rng.integers(1, 3)):
        low, high = where[str(rng.choice(list(where)))]
        place = int(rng.integers(low, max(high, low + 1))) % len(data)
        edit = rng.choice(["flip", "edge", "any", "insert", "delete"], p=[0.3, 0.3, 0.2, 0.1, 0.1])
        if edit == "flip":
            data[place] ^= 1 << int(rng.integers(8))
        elif edit == "edge":
            data[place] = rng.choice(EDGES)
        elif edit == "any":
            data[place] = rng.integers(256)
        else:
            length = int(rng.integers(1, 9))
            place = max(place, body)
            data[place : place + length * (edit == "delete")] = bytes(length * (edit == "insert"))
            struct.pack_into("<Q", data, 24, len(data) - body)
    return sealed(data + bytes(4))


def read_by_both(frames: list[bytes], dimension: int) -> int:
    """How many of the frames both decoders read, to the same; the others both refuse."""
    read = 0
    for frame in frames:
        asked = struct.unpack_from("<Q", frame, 16)[0]
        expected = dimension if LARGEST < asked <= 1 << 32 else None
        ours = by_reference(frame, expected)
        if isinstance(ours, str):
            assert by_library(frame, expected) is None, f"only the reference refuses ({ours}): {frame.hex()}"
        else:
            assert by_library(frame, expected) == ours, f"only the library refuses, or they differ: {frame.hex()}"
            read += 1
    return read


@few_or_many(40, 2000)
@pytest.mark.parametrize("name", [*CODECS, "float32", *(name for name in names() if name != "uniform")])
def test_both_decoders_refuse_the_same_altered_frames(name: str, frames: int, rng: np.random.Generator) -> None:
    read = 0
    for client in range(frames // 10):
        d = draw_dimension(rng, frames)
        x, segments = rng.standard_t(2, d).astype(np.float32), draw_segments(rng, d)
        if name == "float32":
            frame = aq.encode_float32(x)
        elif name in CODECS:
            frame = aq.encode(draw_levels(rng, d), name)
        else:
            s = int(rng.integers(1, 1 + min(find(name).traits.most, 20)))
            frame = aq.compress(x, s, client, str(rng.choice(CODECS)), segments, quantizer=name)
        read += read_by_both([mutated(frame, rng) for _ in range(10)], d)
    assert 0.02 * frames < read < 0.98 * frames


# Frames made by hand, rule by rule; other headers and bodies that are refused are in the tests of each codec

REFUSED = {
    "fixed: bits behind the last code": by_hand(b"\0\x80", d=7),
    "float32: another codec": float32(codec=0),
    "float32: s = 1": float32(s=1),
    "levels in codec 255": by_hand(bytes(16), codec=255),
    "two scales for the whole": by_hand(scales=(1, 1)),
    "buckets of 0": by_hand(segments=b"\0", layout=1),
    "buckets that make another number of scales": by_hand(segments=b"\1", layout=1),
    "an empty segment": by_hand(segments=b"\0\4", scales=(1, 1), layout=2),
    "segments that do not add up": by_hand(segments=b"\1\4", scales=(1, 1), layout=2),
    "a length longer than it needs": by_hand(segments=b"\x84\0", layout=2),
    "a length of six bytes": by_hand(segments=b"\x80\x80\x80\x80\x80\1", layout=1),
    "padding that is not zero": sealed(by_hand()[:36] + b"\0\0\0\1" + by_hand()[40:]),
    "a body too long": by_hand(bytes(2)),
    "float32: scales": float32(scales=(1.0,)),
    "float32: buckets": float32(scales=(1.0,), segments=b"\4", layout=1),
    "float32: lengths": float32(scales=(1.0,), segments=b"\4", layout=2),
    "float32: another dimension": float32(d=3),
    "float32: NaN": float32(body=struct.pack("<4f", 0, 0, 0, float("nan"))),
    "sparse: a chunk of no bytes": by_hand(b"\x10\1\1\0\0\0", codec=1, d=65_540),
    "dense: the table does not end": dense("00 10 01 00 01 ff 1f 00"),
    "dense: a number of four bytes": dense("00 10 81 80 80 00 00 01 80 20 00"),
    "dense: a word nobody reads": dense("00 10 01 00 01 80 20 01", struct.pack("<4IH", *[1 << 15] * 4, 0)),
    "dense: an unused lane": dense("00 10 01 00 01 80 20 00", struct.pack("<4I", *[1 << 15] * 3, (1 << 15) + 1), d=3),
}

READ = {
    "plain": by_hand(),
    "a bucket larger than the vector": by_hand(segments=b"\x09", layout=1),
    "equal lengths as a list": by_hand(segments=b"\2\2", scales=(1, 1), layout=2),
    "a scale of -0": by_hand(scales=(-0.0,)),
    "levels in a segment of scale 0": by_hand(b"\1", scales=(0.0,)),
    "fixed: a negative zero": by_hand(b"\2"),
    "sparse: chunks larger than the vector": by_hand(b"\x20\0", codec=1),
    "dense: equal levels": dense("00 10 01 00 01 80 20 00"),
    "float32": float32(),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_a_broken_rule_is_refused_by_both_decoders(rule: str) -> None:
    assert isinstance(by_reference(REFUSED[rule]), str)
    assert by_library(REFUSED[rule]) is None


@pytest.mark.parametrize("form", READ)
def test_an_unusual_form_that_no_rule_forbids_is_read_by_both_decoders(form: str) -> None:
    assert by_reference(READ[form]) == by_library(READ[form])
