"""Frames with a right checksum, whatever else is in them."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from typing import Any

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.codecs.frame import Header, Known, read_frame
from adaquantfl.codecs.frame import framed as library_framed
from adaquantfl.codecs.varints import varint
from adaquantfl.protocol.messages import Reply
from adaquantfl.quantizers.levels import level_dtype

SLOTS = 4096


def sealed(frame: bytes | bytearray) -> bytes:
    """The frame, whose last four bytes were no checksum, with the one that its other bytes ask for."""
    return bytes(frame[:-4]) + struct.pack("<I", zlib.crc32(frame[:-4]))


def dense_body(levels: aq.Levels, pairs: bool, lanes: int = 64, exponent: int = 16) -> bytes:
    """A body of the dense codec as it is asked for, written from docs/wire-format.md with plain numbers.

    Levels are symbols of their own, 4096 different ones at most.
    """
    values = [int(value) for value in levels.values]
    largest = max(1, *map(abs, values))
    symbols: list[Any] = [*zip(values[::2], [*values[1::2], 0], strict=False)] if pairs else values
    every: list[Any] = [*product(range(-largest, largest + 1), repeat=2)] if pairs else sorted(set(values))
    counts = Counter(symbols)
    size = dict(zip(every, shares([counts[symbol] for symbol in every]), strict=True))
    starts = dict(zip(every, accumulate(size.values(), initial=0), strict=False))
    head, level = bytes([(largest if pairs else 0) | (4, 16, 64).index(lanes) << 4, exponent]), -levels.top
    for symbol in every:
        if not pairs:  # a run for each: levels skipped, width, how many
            head += varint(symbol - level) + varint(0) + varint(1)
            level = symbol + 1
        head += varint(size[symbol])
    streams = b""
    for first in range(0, len(symbols), 1 << exponent):
        words = stream(symbols[first : first + (1 << exponent)], starts, size, lanes)
        head += varint(len(words) - 2 * lanes)
        streams += struct.pack(f"<{len(words)}H", *words)
    return head + bytes(-len(head) % 4) + streams


def shares(counts: list[int]) -> list[int]:
    """Frequencies that add up to 4096, at least 1 for what occurs."""
    total = sum(counts)
    found = [max(1, count * SLOTS // total) if count else 0 for count in counts]
    while sum(found) != SLOTS:
        largest = found.index(max(found))
        found[largest] += max(SLOTS - sum(found), 1 - found[largest])
    return found


def stream(symbols: list[Any], starts: dict[Any, int], size: dict[Any, int], lanes: int) -> list[int]:
    """The words of a chunk: the last symbols first, then the states."""
    states, words = [1 << 15] * lanes, []
    for first in range((len(symbols) - 1) // lanes * lanes, -1, -lanes):
        for lane, symbol in enumerate(symbols[first : first + lanes]):
            x, f = states[lane], size[symbol]
            if x >= f << 19:
                words.append(x & 0xFFFF)
                x >>= 16
            states[lane] = (x // f << 12) + starts[symbol] + x % f
    return words + [half for x in states for half in (x & 0xFFFF, x >> 16)]


def framed(levels: aq.Levels, codec: int, body: bytes) -> bytes:
    """A frame of this body, with the header of these levels."""
    return library_framed(Header.of(levels, codec), body)


def whole(reply: Reply, known: Known) -> Reply:
    """The reply with a frame that says everything about itself."""
    return replace(reply, frame=read_frame(reply.frame, None, known).written()) if reply.frame else reply


def levels_of(values: npt.ArrayLike, s: int) -> aq.Levels:
    """Levels with these values, rounded and cut to -s to s."""
    clipped = np.clip(np.rint(np.asarray(values)), -s, s).astype(level_dtype(s))
    return aq.Levels(clipped, np.float32(1.5), s)


def read_or_refused(frame: bytes) -> bool:
    """Whether a frame is read. Anything but a FrameError or levels within s fails the test."""
    try:
        levels = aq.decode(frame)
    except aq.FrameError:
        return False
    assert np.abs(levels.values.astype(np.int64)).max() <= levels.top
    return True


def entropy_bytes(values: npt.NDArray[np.signedinteger]) -> float:
    """The entropy of these values."""
    counts = np.unique(values, return_counts=True)[1]
    return float(-np.sum(counts * np.log2(counts / len(values)))) / 8


def some_vector(kind: str, d: int, seed: int = 5) -> npt.NDArray[np.float32]:
    """An update of this kind."""
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[[], npt.NDArray[np.float64]]] = {
        "gauss": lambda: rng.standard_normal(d),
        "laplace": lambda: rng.laplace(size=d),
        "heavy": lambda: rng.standard_t(2, d),
        "layers": lambda: rng.standard_normal(d) * np.exp(6 * np.sin(np.arange(d) / (d / 9 + 1))),
        "mostly zero": lambda: rng.standard_normal(d) * (rng.random(d) < 0.001),
        "ones": lambda: np.ones(d),
        "zeros": lambda: np.zeros(d),
        "one": lambda: np.eye(1, d, d // 2)[0],
    }
    return draws[kind]().astype(np.float32)
