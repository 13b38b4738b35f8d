"""A second decoder of the wire format, in plain Python, written from docs/wire-format.md alone.

It is slow and keeps to the words of the specification; the tests hold the library's decoder against it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

HEADER = struct.Struct("<4s4B2I2Q")
UNIFORM, FLOAT32 = 0, 255
CENTROID, STC = 7, 11
FIXED, SPARSE, DENSE = 0, 1, 2
WHOLE, BUCKETS, LIST = 0, 1, 2

LANE = 32
BLOCK = 1024
SLOTS = 4096
LONGEST_UNARY = 20


@dataclass(frozen=True)
class Kind:
    """A row of the table of quantizers."""

    name: str
    most: int = 65535  # s
    keyed: bool = False
    rotated: bool = False
    numbers: int = 0  # further ones of the frame, from 1 to 2^20


_NORMED = {
    (0, 1): Kind("uniform"),
    (2, 3): Kind("rotated", keyed=True, rotated=True),
    (4, 5): Kind("lattice", keyed=True),
    (6,): Kind("eden", most=16, keyed=True, rotated=True),
    (CENTROID,): Kind("centroid", keyed=True, rotated=True, numbers=1),
    (8,): Kind("terngrad", most=1),
    (9, 10): Kind("natural", most=127),
    (STC,): Kind("stc"),
    (12,): Kind("nearest"),
    (13,): Kind("fitted"),
}
QUANTIZERS = {tag: kind for tags, kind in _NORMED.items() for tag in tags}


@dataclass(frozen=True)
class Decoded:
    """What a frame says; with quantizer 0 element i, in segment j, stands for `scales[j] * values[i] / s`."""

    s: int
    dimension: int
    segments: list[int] | None
    scales: list[float]
    values: list[int]
    quantizer: int = UNIFORM
    numbers: tuple[float, ...] = ()
    key: int | None = None


def decode(data: bytes, dimension: int | None = None) -> Decoded:
    """Read a frame of levels; raise ValueError, with the reason, if it breaks a rule of the specification."""
    frame = _open(data, dimension)
    _require(frame.quantizer in QUANTIZERS, f"quantizer {frame.quantizer} does not hold levels")
    _require(1 <= frame.s <= QUANTIZERS[frame.quantizer].most, f"s is {frame.s}")
    readers = {FIXED: _fixed, SPARSE: _sparse, DENSE: _dense}
    _require(frame.codec in readers, f"codec {frame.codec} is unknown")
    _require(_bound(frame) <= 2.0**127, "an element could be above 2^127")
    top = _top(frame.quantizer, frame.s, frame.numbers)
    values = readers[frame.codec](frame.body, frame.dimension, top)
    kind = (frame.quantizer, frame.numbers, frame.key)
    return Decoded(frame.s, frame.dimension, frame.segments, frame.scales, values, *kind)


def decode_float32(data: bytes, dimension: int | None = None) -> list[float]:
    """Read a frame of plain float32 values; raise ValueError, with the reason, if it breaks a rule."""
    frame = _open(data, dimension)
    _require(frame.quantizer == FLOAT32, f"quantizer {frame.quantizer} does not hold float32 values")
    _require(frame.codec == FLOAT32, f"codec {frame.codec} does not hold float32 values")
    _require(frame.s == 0, f"s is {frame.s} in a frame of float32 values")
    _require(frame.segments is None and not frame.scales, "float32 values have neither segments nor scales")
    _require(len(frame.body) == 4 * frame.dimension, "the body does not hold 4 bytes for each element")
    values = list(struct.unpack(f"<{frame.dimension}f", frame.body))
    _require(all(map(math.isfinite, values)), "a value is not finite")
    return values


# --- Header ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Frame:
    quantizer: int
    codec: int
    s: int
    dimension: int
    segments: list[int] | None
    scales: list[float]
    numbers: tuple[float, ...]
    key: int | None
    body: bytes


def _open(data: bytes, expected: int | None) -> _Frame:
    _require(len(data) >= HEADER.size + 4, "the frame is shorter than a header and a checksum")
    _require(zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little"), "the checksum differs")
    magic, version, quantizer, codec, layout, s, n, d, body_size = HEADER.unpack_from(data)
    _require(magic == b"AQFL", "the magic is not AQFL")
    _require(version == 1, f"version {version} is unknown")
    _require(1 <= d <= 1 << 32, f"the dimension is {d}")
    _require(expected is None or d == expected, f"the dimension is {d}, expected was {expected}")

    source = _Bytes(data[:-4], HEADER.size)
    _require(4 * n <= source.left(), "the scales run past the end of the frame")
    segments = _segments(source, layout, n, d, 0 if quantizer == FLOAT32 else 1)
    scales = list(struct.unpack(f"<{n}f", source.take(4 * n)))
    _require(all(math.isfinite(scale) and scale >= 0 for scale in scales), "a scale is negative or not finite")
    numbers, key = _further(source, quantizer, segments or [d])
    _require(not any(source.take(-source.position % 8)), "the padding before the body is not zero")
    _require(source.left() == body_size, "the frame is longer or shorter than its header says")
    return _Frame(quantizer, codec, s, d, segments, scales, numbers, key, source.take(body_size))


def _further(source: _Bytes, quantizer: int, segments: list[int]) -> tuple[tuple[float, ...], int | None]:
    """The numbers and the key behind the scales."""
    if quantizer not in QUANTIZERS:
        return (), None
    kind = QUANTIZERS[quantizer]
    powers = all(length & (length - 1) == 0 and length <= 1 << 20 for length in segments)
    _require(not kind.rotated or powers, "a segment has not 2^k elements")
    numbers = struct.unpack(f"<{kind.numbers}f", source.take(4 * kind.numbers))
    _require(all(1.0 <= number <= 2.0**20 for number in numbers), "a further number is out of its range")
    return numbers, struct.unpack("<Q", source.take(8))[0] if kind.keyed else None


def _top(quantizer: int, s: int, numbers: tuple[float, ...]) -> int:
    if quantizer == CENTROID:
        return math.ceil(16 * s / numbers[0])
    return {4: 2 * s + 2, 5: 2 * s + 2, STC: 1}.get(quantizer, s)


def _bound(frame: _Frame) -> float:
    """What no element can exceed: growth times the largest scale; a rotation can put a whole block into one element."""
    kind, s = QUANTIZERS[frame.quantizer], frame.s
    growth = 1.0
    if kind.name == "lattice":
        growth = (2 * s + 3.5) / s
    elif kind.name == "eden":
        from .reference_quantizers import lloyd_max

        growth = lloyd_max(s)[-1]
    elif kind.name == "centroid":
        growth = (_top(frame.quantizer, s, frame.numbers) + 1) * frame.numbers[0] / s
    longest = max(frame.segments or [frame.dimension])
    return max(frame.scales) * growth * (math.sqrt(longest) if kind.rotated else 1.0)


def _segments(source: _Bytes, layout: int, n: int, d: int, whole_scales: int) -> list[int] | None:
    """The lengths of the segments; None where there is one, the whole vector."""
    if layout == WHOLE:
        _require(n == whole_scales, f"layout 0 has {n} scales")
        return None
    if layout == BUCKETS:
        size = source.varint(5)
        _require(size >= 1, "the bucket size is 0")
        _require(n == -(-d // size), f"buckets of {size} do not make {n} scales")
        return [size] * (n - 1) + [d - size * (n - 1)]
    _require(layout == LIST, f"layout {layout} is unknown")
    lengths = [source.varint(5) for _ in range(n)]
    _require(all(length >= 1 for length in lengths), "a segment has no element")
    _require(sum(lengths) == d, "the lengths of the segments do not add up to the dimension")
    return lengths


# --- fixed ----------------------------------------------------------------------------------------------------------


def _fixed(body: bytes, d: int, s: int) -> list[int]:
    width = s.bit_length() + 1  # ceil(log2(s + 1)) + 1
    _require(len(body) == -(-d * width // 8), "the body does not hold the bits of its elements")
    codes = []
    whole = d // BLOCK
    for block in range(whole):
        words = struct.unpack_from(f"<{LANE * width}I", body, block * 4 * LANE * width)
        lanes = []
        for lane in range(LANE):
            bits = b"".join(word.to_bytes(4, "little") for word in words[lane::LANE])
            lanes.append(_split(bits, LANE, width))
        codes += [code for row in zip(*lanes, strict=True) for code in row]
    codes += _split(body[whole * 4 * LANE * width :], d % BLOCK, width)

    sign = 1 << (width - 1)
    values = [sign - code if code >= sign else code for code in codes]
    _require(all(abs(value) <= s for value in values), "a magnitude is above s")
    return values


def _split(data: bytes, count: int, width: int) -> list[int]:
    """`count` numbers of `width` bits, lowest bits first; the bits behind them are zero."""
    bits = int.from_bytes(data, "little")
    _require(bits >> (count * width) == 0, "unused bits are not zero")
    return [(bits >> (i * width)) & ((1 << width) - 1) for i in range(count)]


# --- sparse ---------------------------------------------------------------------------------------------------------


def _sparse(body: bytes, d: int, s: int) -> list[int]:
    source = _Bytes(body)
    c = source.byte()
    _require(16 <= c <= 32, f"a chunk of 2^{c} elements")
    sizes = [min(1 << c, d - start) for start in range(0, d, 1 << c)]
    counts = [source.varint(5) for _ in sizes]
    filled = [i for i, count in enumerate(counts) if count]
    lengths = {i: source.varint(5) for i in filled[:-1]}
    if filled:
        lengths[filled[-1]] = source.left() - sum(lengths.values())
        _require(lengths[filled[-1]] >= 0, "the lengths of the chunks add up to more than there is")
    for i in filled:
        _require(counts[i] <= sizes[i], "more non-zero elements than elements in a chunk")
        _require(counts[i] <= 4 * lengths[i], "more non-zero elements than a chunk has room for")

    values = []
    for i, size in enumerate(sizes):
        values += _chunk(source.take(lengths[i]), size, counts[i], s) if counts[i] else [0] * size
    _require(source.left() == 0, "bytes behind the last chunk")
    return values


def _chunk(data: bytes, size: int, count: int, s: int) -> list[int]:
    source = _Bits(data)
    nonzero, negative = [], []
    for position in _marked(source, size, count):
        nonzero.append(position)
        negative.append(source.number(1))

    magnitudes = [1] * count
    reached = list(range(count))  # the elements, by their place in `nonzero`, that are at least `magnitude`
    for magnitude in (2, 3):
        more = source.gamma() - 1
        _require(more <= len(reached), f"more elements of at least {magnitude} than of at least {magnitude - 1}")
        reached = [reached[place] for place in _marked(source, len(reached), more)]
        for place in reached:
            magnitudes[place] = magnitude
        if not more:
            break
    for place in reached:
        magnitudes[place] = 2 + source.gamma()
    _require(max(magnitudes) <= s, "a level is above s")
    source.finish()

    values = [0] * size
    for position, sign, magnitude in zip(nonzero, negative, magnitudes, strict=True):
        values[position] = -magnitude if sign else magnitude
    return values


def _marked(source: _Bits, things: int, marked: int) -> Iterator[int]:
    """The positions of `marked` things among `things`, from their gaps in an adaptive Golomb code."""
    if not marked:
        return
    mean = (16 * (things - marked) + 8 * marked) // marked
    position = -1
    for _ in range(marked):
        m = max(1, (177 * mean + 2048) >> 12)
        ones = source.ones(LONGEST_UNARY)
        if ones == LONGEST_UNARY:
            gap = ones * m + source.number((things - 1).bit_length())
        else:
            gap = ones * m + source.truncated_binary(m)
        mean += gap - (mean >> 4)
        position += 1 + gap
        _require(position < things, "a gap leads past the last element")
        yield position


# --- dense ----------------------------------------------------------------------------------------------------------


def _dense(body: bytes, d: int, s: int) -> list[int]:
    source = _Bytes(body)
    first, c = source.byte(), source.byte()
    t, states = first % 16, first // 16
    _require(states <= 2, "the number of states is unknown")
    states = (4, 16, 64)[states]
    _require(t <= min(s, 7), "pairs of levels above 7 or s")
    _require(16 <= c <= 20, "a chunk has 2^16 to 2^20 symbols")
    count = (d + 1) // 2 if t else d
    sizes = [min(1 << c, count - start) for start in range(0, count, 1 << c)]
    _require(len(body) >= 4 * states * len(sizes), "the body is too short for its states")
    pairs = [(first, second) for first in range(-t, t + 1) for second in range(-t, t + 1)]
    if t:  # a pair is an interval of one
        frequencies = [source.varint(3) for _ in pairs]
        _require(sum(frequencies) == SLOTS, "the frequencies do not add up to 4096")
        slots = [(number, 0, f, place) for number, f in enumerate(frequencies) for place in range(f)]
    else:
        slots = _table(source, s)
    words = [source.varint(3) for _ in sizes]
    _require(not any(source.take(-source.position % 4)), "the padding before the chunks is not zero")
    found: list[tuple[int, int]] = []
    for size, each in zip(sizes, words, strict=True):
        unread = list(struct.unpack(f"<{each}H", source.take(2 * each)))
        found += _chunk_of_states(list(struct.unpack(f"<{states}I", source.take(4 * states))), unread, size, slots)
    if not t:
        low = _Bits(source.take(source.left()))
        values = [lowest + low.number(bits) for lowest, bits in found]
        low.finish()
        return values
    _require(source.left() == 0, "bytes behind the last chunk")
    values = [level for number, _ in found for level in pairs[number]]
    _require(not any(values[d:]), "an element behind the last one is not 0")
    return values[:d]


def _table(source: _Bytes, s: int) -> list[tuple[int, int, int, int]]:
    """For each of the 4096 slots: lowest level, width and frequency of its interval, and its place in it."""
    slots: list[tuple[int, int, int, int]] = []
    lowest = -s
    while len(slots) < SLOTS:
        lowest += source.varint(3)
        e = source.byte()
        _require(e <= 16, f"an interval of 2^{e} levels")
        count = source.varint(3)
        _require(count >= 1, "a run of no intervals")
        for _ in range(count):
            f = source.varint(3)
            _require(f >= 1, "an interval of frequency 0")
            _require(len(slots) + f <= SLOTS, "the frequencies add up to more than 4096")
            _require(lowest + (1 << e) - 1 <= s, "an interval reaches beyond s")
            slots += [(lowest, e, f, place) for place in range(f)]
            lowest += 1 << e
    return slots


def _chunk_of_states(
    states: list[int], unread: list[int], size: int, slots: list[tuple[int, int, int, int]]
) -> list[tuple[int, int]]:
    """Of each symbol the lowest level that it stands for, and how many low bits of the level are elsewhere."""
    _require(all(1 << 15 <= x < 1 << 31 for x in states), "a state is out of its range")
    symbols, lanes = [(0, 0)] * size, len(states)
    for start in range(0, size, lanes):
        for i in reversed(range(start, min(start + lanes, size))):
            x = states[i - start]
            lowest, e, f, place = slots[x % SLOTS]
            kept = min(e, 3)
            y = x // SLOTS
            symbols[i] = lowest + (y % (1 << kept) << e - kept), e - kept
            x = f * (y >> kept) + place
            if x < 1 << 15:
                _require(bool(unread), "a chunk needs more words than it has")
                x = (x << 16) + unread.pop()
            states[i - start] = x
    _require(states == [1 << 15] * lanes, "a chunk does not end in the states an encoder starts with")
    _require(not unread, "a chunk has words left over")
    return symbols


# --- Readers --------------------------------------------------------------------------------------------------------


class _Bytes:
    """Bytes, read from front to back."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        _require(count <= self.left(), "the frame ends too early")
        self.position += count
        return self.data[self.position - count : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self, longest: int) -> int:
        value = 0
        for i in range(longest):
            byte = self.byte()
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                _require(byte > 0 or i == 0, "a number is not in its shortest form")
                return value
        raise ValueError(f"a number has more than {longest} bytes")


class _Bits:
    """Bits, read from the lowest bit of the first byte on."""

    def __init__(self, data: bytes) -> None:
        self.bits = "".join(f"{byte:08b}"[::-1] for byte in data)
        self.position = 0

    def number(self, count: int) -> int:
        end = self.position + count
        _require(end <= len(self.bits), "a code runs past the end of its chunk")
        text = self.bits[self.position : end]
        self.position = end
        return int(text[::-1], 2) if text else 0

    def ones(self, longest: int) -> int:
        """The number of ones up to the next zero, which is skipped, or `longest` with nothing behind them skipped."""
        zero = self.bits.find("0", self.position, self.position + longest)
        if zero < 0:
            _require(self.position + longest <= len(self.bits), "a code runs past the end of its chunk")
            self.position += longest
            return longest
        count = zero - self.position
        self.position = zero + 1
        return count

    def truncated_binary(self, m: int) -> int:
        if m == 1:
            return 0
        b = (m - 1).bit_length()
        u = (1 << b) - m
        v = self.number(b - 1)
        return 2 * v + self.number(1) - u if v >= u else v

    def gamma(self) -> int:
        k = self.ones(len(self.bits) - self.position + 1)  # a run of ones up to the end is refused
        return (1 << k) + self.number(k)

    def finish(self) -> None:
        rest = self.bits[self.position :]
        _require(len(rest) < 8, "a chunk has bytes left over")
        _require("1" not in rest, "bits behind the last code are not zero")


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)
