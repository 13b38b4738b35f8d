"""Levels to frames and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import core
from ..errors import FrameError
from ..open_registry import OUTSIDE_TAGS
from ..quantizers.base import Lengths, MaxError, Quantizer, Vector, norm_of
from ..quantizers.levels import Levels, level_dtype, quantize
from ..quantizers.registry import find
from ..quantizers.segments import Segments
from ..quantizers.streams import checked_key
from ..quantizers.vectors import FloatVector, Stretch, check_levels, check_stretch, float32_vector
from .frame import FLOAT32, Bytes, Frame, Known, left_out, read_frame
from .registry import BuiltIn, Codec, by_tag
from .registry import find as find_codec

MOST_ELEMENTS = 2**26  # that `decode` makes of a frame whose dimension nobody has named


def encode(levels: Levels, codec: str | BuiltIn | Codec = "auto", known: Known | None = None) -> bytes:
    """Return the frame of some levels. codec: "fixed" is the paper's; "auto" takes the smallest; or an object.

    known: what the receiver knows, which the frame leaves out.

    >>> levels = quantize(np.array([3.0, -4.0], dtype=np.float32), s=5, key=0)
    >>> decode(encode(levels)) == levels
    True
    """
    frame: bytes = find_codec(codec).encode(_checked(levels), known)
    read_frame(frame, levels.dimension, known)  # refuses scales, a key or segments that the quantizer cannot have
    return frame


def compress(
    x: FloatVector,
    s: int,
    key: int,
    codec: str | BuiltIn | Codec = "auto",
    segments: Lengths | None = None,
    stretch: Stretch = 1.0,
    quantizer: str | Quantizer = "uniform",
    norm: str | None = None,
    known: Known | None = None,
) -> bytes:
    """Quantize and encode in one go: `encode(quantize(x, s, key, segments, stretch, quantizer, norm), codec)`.

    With the paper's quantizer it is one pass, and faster.

    >>> x = np.linspace(-1, 1, 5000, dtype=np.float32)
    >>> compress(x, s=3, key=1) == encode(quantize(x, s=3, key=1))
    True
    """
    kind, writer = find(quantizer), find_codec(codec)
    if not (kind.traits.from_paper and isinstance(writer, BuiltIn)):
        levels = quantize(x, s, key, segments, stretch, kind, norm)
        outside = any(tag in OUTSIDE_TAGS for tag in kind.tags.values())  # the core does not look at what it is given
        return writer.encode(_checked(levels) if outside else levels, known)
    check_levels(s)
    vector = float32_vector(x)
    offsets = None if segments is None else Segments.of(segments, len(vector)).offsets
    check_stretch(stretch, 1 if offsets is None else len(offsets) - 1)
    tag = kind.tags[norm_of(kind, norm)]
    return core.compress(vector, int(s), checked_key(key), tag, writer.TAG, offsets, stretch, left_out(known))


def quantize_within(
    x: Vector,
    error: float,
    key: int = 0,
    segments: Lengths | None = None,
    quantizer: str | Quantizer = "fitted",
    balanced: bool | None = None,
) -> Levels:
    """The coarsest levels whose squared error is at most `error` times the vector's energy.

    balanced: each segment with its own number of levels; None: where the quantizer can.

    >>> x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    >>> left_out = quantize_within(x, 0.3).remainder(x)
    >>> bool(0.2 < np.sum(left_out**2) / np.sum(x**2) <= 0.3)
    True
    """
    kind = find(quantizer)
    norm, lengths = norm_of(kind, None), np.array([len(x)] if segments is None else segments, dtype=np.int64)
    spread = kind.traits.balanced if balanced is None else balanced
    s, stretch = kind.levels_for(MaxError(error), lengths, x, spread, key, norm)
    return quantize(x, s, key, segments, stretch, kind)


def decode(frame: Bytes, dimension: int | None = None, most: int = MOST_ELEMENTS) -> Levels:
    """Return the levels of a frame. Raises FrameError on anything malformed.

    A few bytes can stand for billions of zeros. Pass the dimension that you expect; without it, a frame of more than
    `most` elements is refused.

    >>> decode(b"nonsense")
    Traceback (most recent call last):
    adaquantfl.errors.FrameError: Truncated: 8 bytes, but a frame has at least 36. Ask the sender for the whole message.
    """
    parsed = read_frame(frame, dimension)
    if dimension is None and parsed.header.dimension > most:
        raise FrameError(
            f"The frame has {parsed.header.dimension:,} elements. Without a dimension, {most:,} are decoded at most: "
            "pass the dimension that you expect."
        )
    return levels_of(parsed)


def levels_of(frame: Frame) -> Levels:
    """The levels of a frame; FrameError where its body is damaged."""
    header = frame.header
    if header.quantizer == FLOAT32:
        raise FrameError("The frame carries float32 values, not levels. Read it with aq.decode_float32(frame).")
    try:
        values = by_tag(frame).read(frame)
    except MemoryError:
        raise FrameError(f"{header.dimension:,} elements do not fit in memory.") from None
    scale = header.scales[0] if header.segments is None else header.scales
    return Levels(values, scale, header.s, header.segments, header.kind.name, header.norm, header.key, header.number)


def _checked(levels: Levels) -> Levels:
    """Refuse Levels that were put together by hand and do not hold together; plain arrays for the core otherwise."""
    check_levels(levels.s, find(levels.quantizer).traits.most)
    values, scales = np.asarray(levels.values), levels.scales
    if values.ndim != 1 or values.size == 0 or not np.issubdtype(values.dtype, np.signedinteger):
        raise FrameError(f"Levels need a 1-D array of signed integers, got {values.dtype} of shape {values.shape}.")
    if levels.norm not in find(levels.quantizer).tags:
        raise FrameError(f"norm={levels.norm!r}: {levels.quantizer} does not have it.")
    if len(scales) != Segments.of(levels.segments, levels.dimension).count:
        raise FrameError(f"{len(scales)} scales for {Segments.of(levels.segments, levels.dimension).count} segments.")
    number = find(levels.quantizer).traits.number
    if number and not (levels.number is not None and number.least <= levels.number <= number.most):
        raise FrameError(f"The {number.name} is outside {number.least:g} to {number.most:g}.")
    if levels.key is not None:
        checked_key(levels.key)
    top = levels.top
    if values.max() > top or values.min() < -top:
        allowed = "-s to s" if top == levels.s else f"-{top} to {top}"
        raise FrameError(f"The levels reach from {values.min()} to {values.max()}; s = {levels.s} allows {allowed}.")
    return replace(levels, values=np.ascontiguousarray(values, dtype=level_dtype(top)), s=int(levels.s))
