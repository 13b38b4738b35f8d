"""Frames without what their receiver knows: what is left out comes back, and no bytes make more than a refusal."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaquantfl as aq
from adaquantfl.codecs.coding import levels_of
from adaquantfl.codecs.frame import Known, read_frame
from adaquantfl.codecs.varints import varint
from adaquantfl.quantizers import find
from adaquantfl.quantizers.base import norm_of
from adaquantfl.quantizers.registry import names
from adaquantfl.quantizers.segments import scope_segments

LENGTHS = (700, 11, 300)
LONGEST = 65_536  # bytes of a body whose header is short
D = sum(LENGTHS)
KEY = aq.stream_key(3, 1, 4)
X = np.random.default_rng(5).standard_normal(D)


def known_of(quantizer: str, scope: str | int = "tensor") -> Known:
    kind = find(quantizer)
    return Known(kind.tags[norm_of(kind, None)], D, scope_segments(scope, LENGTHS), KEY)


def frames_of(quantizer: str, known: Known, written: Known | None = None, key: int = KEY) -> tuple[bytes, bytes]:
    """A frame that says everything, and one that leaves out what is known."""
    call = {"segments": known.segments, "quantizer": quantizer}
    return aq.compress(X, 1, key, **call), aq.compress(X, 1, key, **call, known=written or known)


@pytest.mark.parametrize(
    ("quantizer", "scope"), [*((name, "tensor") for name in names()), ("uniform", "whole"), ("centroid", 64)]
)
def test_every_quantizers_frame_comes_back(quantizer: str, scope: str | int) -> None:
    known = known_of(quantizer, scope)
    whole, short = frames_of(quantizer, known)
    read = read_frame(short, D, known)
    assert read.written() == whole
    assert read_frame(whole, D, known).written(known) == short
    assert levels_of(read) == aq.decode(whole)
    assert len(short) <= len(whole) - 30
    assert aq.encode(aq.decode(whole), known=known) == short


SCALES = (  # of thirteen blocks, and the stretch
    "559fc43d00000000000000000000000000000000000000008077133f0000000000000000000000000000000000000000000000000000803f"
)
GOLDEN = {  # quantizer, what is known of the segments, whether the key is another: what is before the body
    ("uniform", "asked", False): "000101000000400000c03f00000000",
    ("uniform", "other", False): "03010103bc050bac02000000400000c03f00000000",
    ("centroid", "asked", False): "010101" + SCALES,
    ("centroid", "asked", True): "050101" + SCALES + "0800000000000000",
    ("centroid", "other", False): "0301010d80048001201008040802018002200804" + SCALES,
}


@pytest.mark.parametrize("case", GOLDEN)
def test_a_short_frame_has_its_golden_bytes(case: tuple[str, str, bool]) -> None:
    quantizer, segments, other_key = case
    x = np.zeros(D, np.float32)
    x[3], x[705] = 2.0, -1.5
    known = replace(known_of(quantizer), key=7)
    written = known if segments == "asked" else replace(known, segments=np.array([1000, 11]))
    key = 8 if other_key else 7
    short = aq.compress(x, 1, key, segments=known.segments, quantizer=quantizer, known=written)
    body = read_frame(aq.compress(x, 1, key, segments=known.segments, quantizer=quantizer)).body.tobytes()
    assert short.hex() == GOLDEN[case] + body.hex()


def test_segments_in_large_blocks_have_a_way_of_their_own() -> None:
    x, known = np.ones(100_000, np.float32), Known(find("centroid").tags[""], 100_000, None, 7)
    short = aq.compress(x, 1, 7, quantizer="centroid", stretch=300.0, known=known)
    assert (short[0], len(read_frame(short, None, known).header.scales)) == (1, 6)  # 65,536 and the rest
    million = np.ones(300_000, np.float32)
    known = replace(known, dimension=300_000)
    assert aq.compress(million, 1, 7, quantizer="centroid", stretch=300.0, known=known)[0] == 2


@pytest.mark.parametrize(("quantizer", "begins"), [("uniform", 1), ("uniform", 2), ("uniform", 4), ("fitted", 7)])
def test_what_a_quantizer_cannot_have_is_refused(quantizer: str, begins: int) -> None:
    """Blocks are for rotating quantizers: cutting a million segments for nothing would take seconds."""
    with pytest.raises(aq.FrameError, match="rule FLAGS of"):
        read_frame(bytes([begins, 1, 1]) + bytes(60), D, known_of(quantizer))


def test_listed_segments_cost_no_more_memory_than_their_bytes() -> None:
    """The first segment has one element: buckets of that size would be as many as elements."""
    d = 200_000_000
    short = bytes([3, 1, 1]) + varint(2) + varint(1) + varint(d - 1) + bytes(8) + b"\x20" + bytes(4)
    tracemalloc.start()
    try:
        read_frame(short, d, Known(0, d, None))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_another_key_travels_with_the_frame() -> None:
    known = known_of("centroid")
    whole, short = frames_of("centroid", known, key=KEY + 1)
    for same in (known, replace(known, key=None)):
        assert read_frame(short, D, same).written() == whole
    with pytest.raises(aq.FrameError, match="rule NO_KEY of"):
        read_frame(frames_of("centroid", known)[1], D, replace(known, key=None))


def test_what_is_not_as_known_travels_whole() -> None:
    known = known_of("uniform")
    for other in (replace(known, quantizer=7), replace(known, dimension=D + 1)):
        whole, written = frames_of("uniform", known, other)
        assert written == whole
    assert read_frame(whole, D, known).written() == whole, "a reader who knows takes whole frames too"
    long = aq.compress(np.ones(8 * LONGEST), s=255, key=0, codec="fixed", known=Known(0, 8 * LONGEST, None))
    assert aq.decode(long).dimension == 8 * LONGEST


def test_many_short_segments_are_read_at_once() -> None:
    lengths = np.array([1, 127, 128, 16_384, 1] * 100 + [2_100_000])
    frame = aq.compress(np.zeros(lengths.sum(), np.float32), 1, 0, "sparse", segments=lengths)
    assert b"".join(varint(int(n)) for n in lengths) in frame
    np.testing.assert_array_equal(read_frame(frame).header.segments, lengths)


def test_a_short_frame_is_nothing_to_a_reader_who_does_not_know() -> None:
    with pytest.raises(aq.FrameError, match=r"Not a frame|Truncated"):
        aq.decode(frames_of("uniform", known_of("uniform"))[1])


@given(st.binary(max_size=80), st.sampled_from(names()), st.sampled_from(["tensor", "whole", 64]))
def test_bytes_that_are_no_short_frame_are_refused(data: bytes, quantizer: str, scope: str | int) -> None:
    try:
        levels_of(read_frame(data, D, known_of(quantizer, scope)))
    except aq.FrameError:
        return


@given(st.sampled_from(names()), st.data())
def test_a_changed_short_frame_is_read_or_refused(quantizer: str, data: st.DataObject) -> None:
    known = known_of(quantizer)
    short = bytearray(frames_of(quantizer, known)[1])
    place = data.draw(st.integers(0, len(short) - 1))
    short[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        frame = read_frame(bytes(short), D, known)
        levels = levels_of(frame)
    except aq.FrameError:
        return
    assert np.isfinite(levels.dequantize()).all()
