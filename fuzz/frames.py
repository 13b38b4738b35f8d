"""Frames of every quantizer, codec and scope: taken apart, mutated part by part, put together with a right checksum."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from random import Random

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.varints import varint
from adaquantfl.quantizers import Quantizer
from adaquantfl.quantizers.registry import by_tag, find, names
from support.frames import dense_body, framed

FIXED_PART = struct.Struct("<4sBBBBIIQQ")
CODECS = ("fixed", "sparse", "dense")
TAGS_OF_LEVELS = range(14)
TAGS = (*range(15), 127, 128, 254, 255)
LEVELS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 126, 127, 128, 255, 256, 32767, 32768, 65534, 65535, 65536, 2**32 - 1)
SIZES = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    31,
    32,
    33,
    63,
    64,
    65,
    1023,
    1024,
    1025,
    65536,
    2**20,
    2**26 + 1,
    2**32,
    2**32 + 1,
    2**63,
)
FLOATS = tuple(
    struct.pack("<I", bits)
    for bits in (
        0, 1, 0x80000000, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3FC00000, 0x3FC00001, 0x41800000,
        0x49800000, 0x49800001, 0x75000000, 0x75000001, 0x77800000, 0x7E800000, 0x7F000000, 0x7F000001, 0x7F7FFFFF,
        0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
    )
)  # fmt: skip
LARGE = 0.001  # of the mutants start from a frame of more than one block; they take a thousand times as long
BYTES = (0, 1, 2, 3, 15, 16, 17, 32, 33, 127, 128, 129, 254, 255)


@dataclass
class Parts:
    """A frame taken apart. `lie`: what its header adds to the size of its body."""

    quantizer: int
    codec: int
    layout: int
    s: int
    scales_count: int
    dimension: int
    lengths: bytes
    scales: bytes
    numbers: bytes
    key: bytes
    body: bytes
    version: int = 1
    lie: int = 0

    def copy(self) -> Parts:
        """As `dataclasses.replace` without changes, in a third of the time."""
        other = object.__new__(Parts)
        other.__dict__.update(self.__dict__)
        return other

    def build(self) -> bytes:
        """The frame, with the checksum that its bytes ask for."""
        head = FIXED_PART.pack(
            b"AQFL", self.version, self.quantizer, self.codec, self.layout, self.s, self.scales_count, self.dimension,
            max(0, len(self.body) + self.lie),
        )  # fmt: skip
        head += self.lengths + self.scales + self.numbers + self.key
        data = head + bytes(-len(head) % 8) + self.body
        return data + zlib.crc32(data).to_bytes(4, "little")


def take_apart(frame: bytes) -> Parts:
    """The parts of a well-formed frame."""
    _, version, quantizer, codec, layout, s, count, d, size = FIXED_PART.unpack_from(frame)
    place = start = FIXED_PART.size
    for _ in range({0: 0, 1: 1, 2: count}[layout]):
        while frame[place] >= 128:
            place += 1
        place += 1
    kind = None if quantizer == 255 else by_tag(quantizer)[0]
    lengths, scales = frame[start:place], frame[place : place + 4 * count]
    place += 4 * count
    more = _number_size(kind) if kind else 0
    keyed = kind is not None and kind.traits.keyed
    numbers, key = frame[place : place + more], frame[place + more : place + more + 8 * keyed]
    body = frame[len(frame) - 4 - size : -4]
    return Parts(quantizer, codec, layout, s, count, d, lengths, scales, numbers, key, body, version)


def _number_size(kind: Quantizer) -> int:
    return 4 if kind.traits.number else 0


def seeds() -> list[Parts]:
    """Well-formed frames: every quantizer with every norm, codec and scope, from few levels to the most."""
    rng, found = np.random.default_rng(0), []
    for d in (1, 2, 5, 8, 33, 64):
        x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
        cut = max(1, d // 3)
        scopes = (None, aq.bucket_lengths(d, cut), np.array([1, d - 1] if d > 1 else [1]))
        for name in names():
            kind = find(name)
            for norm in kind.tags:
                for s in sorted({min(kind.traits.most, s) for s in (1, 2, 7, 300, 65535)}):
                    for codec in CODECS:
                        for scope in scopes:
                            frame = aq.compress(x, s, 1, codec, scope, quantizer=name, norm=norm or None)
                            found.append(take_apart(frame))
        found += _dense_seeds(rng, d)
        found.append(take_apart(aq.encode_float32(x)))
    return found


def _dense_seeds(rng: np.random.Generator, d: int) -> list[Parts]:
    """Frames of the dense codec with many states, in pairs and in levels, single ones and wide intervals."""
    small = aq.Levels(rng.integers(-2, 3, d).astype(np.int8), np.float32(1), 7)
    large = aq.Levels(np.rint(300 * rng.standard_normal(d)).astype(np.int16), np.float32(1), 2000)
    bodies = [
        (small, dense_body(small, True)),
        (small, dense_body(small, False, 16)),
        (large, dense_body(large, False)),
    ]
    return [take_apart(framed(levels, 2, body)) for levels, body in bodies]


def large_seeds() -> list[Parts]:
    """Frames of more than one block, tile or chunk."""
    found = []
    for d in (1030, 2048, 66_000):
        rng = np.random.default_rng(d)
        x = (rng.standard_normal(d) * np.exp(rng.standard_normal(d))).astype(np.float32)
        for s in (1, 5, 300):
            for codec in CODECS:
                found.append(take_apart(aq.compress(x, s, 1, codec, [d - 7, 7])))
        found += _dense_seeds(rng, d)
        for name in ("centroid", "lattice"):
            found.append(take_apart(aq.compress(x, 3, 1, quantizer=name)))
    return found


class Mutator:
    """Makes mutants. pool: frames to start from and to take parts from; it grows by mutants that did something new."""

    def __init__(self, pool: list[Parts], large: list[Parts], chance: Random) -> None:
        self.pool, self.large, self.chance = list(pool), large, chance
        self._edits = (
            self._edit_body, self._edit_body, self._edit_body, self._edit_scales, self._edit_scales, self._edit_numbers,
            self._edit_levels, self._edit_quantizer, self._edit_codec, self._edit_segments, self._edit_segments,
            self._edit_dimension, self._edit_key, self._splice_body,
            self._splice_body, self._splice_head, self._lie,
        )  # fmt: skip

    def seed(self) -> Parts:
        if self.large and self.chance.random() < LARGE:
            return self.chance.choice(self.large)
        return self.chance.choice(self.pool)

    def mutant(self) -> tuple[Parts, int]:
        """A mutated frame, and the dimension that its receiver expects."""
        chance = self.chance
        start = self.seed()
        parts = start.copy()
        for _ in range(1 if chance.random() < 0.6 else chance.randint(2, 4)):
            chance.choice(self._edits)(parts)
        if chance.random() < 0.7:
            _repair(parts)
        expected = start.dimension if chance.random() < 0.6 else parts.dimension
        return parts, min(max(expected, 1), 70_000)

    def raw(self, data: bytes) -> bytes:
        """Bytes of any kind with some of them changed."""
        return _edited(data, self.chance) if data else bytes(self.chance.randrange(256) for _ in range(3))

    def _edit_body(self, parts: Parts) -> None:
        parts.body = self.raw(parts.body)

    def _edit_scales(self, parts: Parts) -> None:
        parts.scales = self._floats(parts.scales)

    def _edit_numbers(self, parts: Parts) -> None:
        parts.numbers = self._floats(parts.numbers)

    def _floats(self, data: bytes) -> bytes:
        chance = self.chance
        if len(data) < 4:
            return chance.choice(FLOATS)
        place = 4 * chance.randrange(len(data) // 4)
        one = chance.choice(FLOATS) if chance.random() < 0.7 else chance.getrandbits(32).to_bytes(4, "little")
        return data[:place] + one + data[place + 4 :]

    def _edit_levels(self, parts: Parts) -> None:
        chance = self.chance
        edge = chance.random() < 0.7
        parts.s = chance.choice(LEVELS) if edge else (parts.s + chance.choice((-1, 1))) % 2**32

    def _edit_quantizer(self, parts: Parts) -> None:
        parts.quantizer = self.chance.choice(TAGS)

    def _edit_codec(self, parts: Parts) -> None:
        parts.codec = self.chance.choice((0, 1, 2, 2, 1, 0, 3, 255))

    def _edit_key(self, parts: Parts) -> None:
        parts.key = self.chance.choice((b"", bytes(8), b"\xff" * 8, self.chance.getrandbits(64).to_bytes(8, "little")))

    def _edit_dimension(self, parts: Parts) -> None:
        chance = self.chance
        edge = chance.random() < 0.5
        parts.dimension = chance.choice(SIZES) if edge else max(0, parts.dimension + chance.choice((-8, -1, 1, 8)))

    def _edit_segments(self, parts: Parts) -> None:
        """Another cut of the vector: sometimes one that adds up."""
        chance, d = self.chance, parts.dimension
        parts.layout = chance.choice((0, 1, 1, 2, 2, 2, 3))
        if parts.layout == 1:
            parts.lengths = varint(chance.choice((0, 1, 2, 3, 8, 64, max(1, d // 2), d, d + 1, 2**32)) % 2**35)
            return
        lengths, rest = [], min(d, 10**6)
        while rest > 0 and len(lengths) < 40:
            lengths.append(min(rest, 1 << chance.randrange(8)))
            rest -= lengths[-1]
        if chance.random() < 0.2 and lengths:
            lengths[chance.randrange(len(lengths))] = chance.choice((0, 1, 2**31, 2**32))
        parts.lengths = b"".join(map(varint, lengths)) if parts.layout else b""
        parts.scales_count = len(lengths) if parts.layout else 1
        parts.scales = (parts.scales * (1 + 4 * parts.scales_count // max(1, len(parts.scales))))[
            : 4 * parts.scales_count
        ]

    def _splice_body(self, parts: Parts) -> None:
        other = self.chance.choice(self.pool)
        cut = self.chance.randrange(1 + min(len(parts.body), len(other.body)))
        parts.body = other.body if self.chance.random() < 0.5 else parts.body[:cut] + other.body[cut:]
        parts.codec = other.codec

    def _splice_head(self, parts: Parts) -> None:
        other = self.chance.choice(self.pool)
        parts.quantizer, parts.s, parts.numbers = other.quantizer, other.s, other.numbers
        parts.key = other.key

    def _lie(self, parts: Parts) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            parts.lie = chance.choice((-4, -1, 1, 4, 2**32))
        else:
            parts.scales_count = chance.choice((0, 1, (parts.scales_count + 1) % 2**32, 2**20, 2**32 - 1))


def _repair(parts: Parts) -> None:
    """As many scales, numbers and keys as the header asks for, so that what lies behind it is reached."""
    if parts.quantizer not in TAGS_OF_LEVELS:
        return
    kind = by_tag(parts.quantizer)[0]
    parts.scales_count = max(1, len(parts.scales) // 4) if parts.layout == 2 else parts.scales_count
    if parts.layout == 0:
        parts.scales_count, parts.lengths = 1, b""
    wanted = parts.scales_count
    if wanted < 5000:
        parts.scales = (parts.scales or FLOATS[5])[: 4 * wanted].ljust(4 * wanted, b"\0")
        size = _number_size(kind)
        parts.numbers = (parts.numbers + FLOATS[5] * (size // 4 + 1))[:size]
    parts.key = (parts.key or bytes(8)) if kind.traits.keyed else b""


def _edited(data: bytes, chance: Random) -> bytes:
    """Flipped bits, edge values, bytes that come or go, or a repeated piece."""
    changed = bytearray(data)
    for _ in range(1 if chance.random() < 0.7 else chance.randint(2, 5)):
        size = len(changed)
        place = chance.randrange(min(size, 16) if chance.random() < 0.4 else size) if size else 0
        kind = chance.randrange(6)
        if kind == 4 or not size:
            changed[place:place] = bytes(chance.choice(BYTES) for _ in range(chance.randint(1, 8)))
        elif kind < 2:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            changed[place] = chance.choice(BYTES)
        elif kind == 3:
            changed[place] = chance.randrange(256)
        else:
            del changed[place : place + chance.randint(1, 8)]
    return bytes(changed)
