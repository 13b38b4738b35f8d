"""The paper's code: ceil(log2(s + 1)) bits for a level and one for its sign, for every element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.levels import Levels
from ..quantizers.uniform import Prepared
from ..threads import over_ranges
from .frame import TILE, Frame, Header, Known, seal, write_frame
from .header import Floats, Lengths, Offsets
from .kernels import fixed as kernels
from .kernels.fixed import BLOCK

NAME = "fixed"
TAG = 0
_SMALLEST = 64  # blocks a thread takes at least


def code_bits(top: int) -> int:
    """Bits of an element on the wire: ceil(log2(s + 1)) and a sign; top is the largest level, s with the paper.

    >>> [code_bits(top) for top in (1, 2, 3, 4, 65535)]
    [2, 3, 3, 4, 17]
    """
    return int(top).bit_length() + 1


def body_size(dimension: int, top: int) -> int:
    """Bytes of a body: C_s - 32 bits, the last block rounded up to a byte."""
    blocks, rest = divmod(dimension, BLOCK)
    return blocks * BLOCK // 8 * code_bits(top) + -(-rest * code_bits(top) // 8)


def encode(levels: Levels, known: Known | None = None) -> bytes:
    """Levels to a frame."""
    d, bits = levels.dimension, code_bits(levels.top)
    frame, body = write_frame(Header.of(levels, TAG), body_size(d, levels.top), known)
    words, tail = _split(body, d, bits)

    def work(first: int, last: int) -> None:
        kernels.pack_levels(levels.values, bits, _codes(), words, tail, first, last)

    over_ranges(work, -(-d // BLOCK), _SMALLEST)
    return _filled(frame, body, words)


def compress(
    ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: Lengths, known: Known | None = None
) -> bytes:
    """Floats to a frame in one pass: the bytes that `encode` gives for the levels of `quantize`."""
    d, bits = ready.segments.dimension, code_bits(s)
    frame, body = write_frame(Header(ready.tag, TAG, s, d, segments, ready.scales), body_size(d, s), known)
    words, tail = _split(body, d, bits)
    x, offsets, inverse, top = ready.x, ready.segments.offsets, ready.inverse, ready.top
    rest = np.zeros(BLOCK, dtype=np.float32)
    rest[: d % BLOCK] = x[d - d % BLOCK :]

    def work(first: int, last: int) -> None:
        each = np.zeros(BLOCK, dtype=inverse.dtype)
        floats = x, offsets, inverse, top, low, high
        kernels.quantize_pack(*floats, bits, rest, _codes(), each, words, tail, first, last)

    over_ranges(work, -(-d // BLOCK), _SMALLEST)
    return _filled(frame, body, words)


def open_body(frame: Frame) -> FixedBody:
    """Check the body's size and that no level is too large."""
    d, s, top = frame.header.dimension, frame.header.s, frame.header.top
    if len(frame.body) != body_size(d, top):
        raise FrameError(f"The body has {len(frame.body):,} bytes; d = {d:,} with s = {s} needs {body_size(d, top):,}.")
    bits = code_bits(top)
    words, tail = _split(frame.body, d, bits)
    rest = np.empty(d % BLOCK, dtype=np.int32)
    tops = np.zeros(d // BLOCK + 1, dtype=np.uint32)
    tops[-1] = kernels.unpack_tail(tail, bits, rest)
    unused = -len(rest) * bits % 8
    if unused and tail[-1] >> (8 - unused):
        raise FrameError("The unused bits of the body's last byte are not 0.")
    if top + 1 != 2 ** (bits - 1):  # otherwise every code is a level
        over_ranges(lambda a, b: kernels.largest_level(words, bits, tops, a, b), d // BLOCK, _SMALLEST)
    if tops.max() > top:
        raise FrameError(f"A level of {tops.max()} in a frame with s = {s}: the sender is at fault.")
    return FixedBody(d, bits, words, rest)


@dataclass(frozen=True)
class FixedBody:
    """A checked body."""

    dimension: int
    bits: int
    words: npt.NDArray[np.uint32]
    rest: npt.NDArray[np.int32]  # the levels behind the last whole block

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.rest.nbytes

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        blocks = self.dimension // BLOCK
        over_ranges(
            lambda a, b: kernels.unpack_levels(self.words, self.bits, _codes(), values, a, b), blocks, _SMALLEST
        )
        values[blocks * BLOCK :] = self.rest

    def add(self, steps: Floats, offsets: Offsets, total: Floats, first: int, last: int) -> None:
        blocks = self.dimension // BLOCK
        start, stop = first * TILE // BLOCK, min(last * TILE // BLOCK, blocks)
        if start < stop:
            each = np.empty(BLOCK, dtype=np.float32)
            kernels.accumulate(self.words, self.bits, offsets, steps, each, total, start, stop)
        if len(self.rest) and stop == blocks and last * TILE > blocks * BLOCK:
            each = steps
            if len(steps) > 1:
                each = steps[np.searchsorted(offsets, np.arange(blocks * BLOCK, self.dimension), side="right") - 1]
            total[blocks * BLOCK :] += each * self.rest.astype(np.float32)


def _codes() -> npt.NDArray[np.uint32]:
    """Scratch memory for the codes of a block."""
    return np.empty(BLOCK, dtype=np.uint32)


def _filled(frame: npt.NDArray[np.uint8], body: npt.NDArray[np.uint8], words: npt.NDArray[np.uint32]) -> bytes:
    """The frame with its body's words, which lie elsewhere where the body is not aligned."""
    if words.flags.owndata:
        body[: words.nbytes] = words.view(np.uint8)
    return seal(frame)


def _split(body: npt.NDArray[np.uint8], d: int, bits: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """The whole blocks as words, and the bytes of the incomplete last one."""
    edge = d // BLOCK * BLOCK // 8 * bits
    words = body[:edge].view("<u4")
    return (words if words.flags.aligned else words.copy()), body[edge:]
