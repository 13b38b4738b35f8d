"""Float32 values as they are: the uncompressed reference, and buffers that must not be quantized."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..quantizers.vectors import all_finite
from .frame import CRC_SIZE, FLOAT32, HEADER_SIZE, Bytes, Frame, Header, framed, read_frame

NAME = "raw"
TAG = 255


def encode_float32(x: npt.NDArray[np.float32]) -> bytes:
    """Return a frame that carries the values themselves.

    >>> decode_float32(encode_float32(np.array([1.5, -2.0], dtype=np.float32)))
    array([ 1.5, -2. ], dtype=float32)
    """
    x = np.ascontiguousarray(x, dtype="<f4")
    if x.ndim != 1 or x.size == 0 or not all_finite(x):
        raise FrameError(
            "Expected a 1-D vector of finite values. Training has probably diverged where it is not finite."
        )
    return framed(Header(FLOAT32, TAG, 0, len(x), None, np.empty(0, dtype=np.float32)), x.data.cast("B"))


def decode_float32(frame: Bytes, dimension: int | None = None) -> npt.NDArray[np.float32]:
    """Return the values of a frame from `encode_float32`. Raises FrameError on anything else.

    >>> frame = encode_float32(np.array([0.5, -2.0], dtype=np.float32))
    >>> len(frame), decode_float32(frame, dimension=2)
    (44, array([ 0.5, -2. ], dtype=float32))
    """
    parsed = read_frame(frame, dimension)
    if parsed.header.quantizer != FLOAT32:
        raise FrameError("The frame carries quantized levels, not float32 values. Read it with aq.decode(frame).")
    check(parsed)
    return values(parsed).copy()


def check(frame: Frame) -> None:
    """Refuse a body of the wrong size or with a NaN or infinite value."""
    if len(frame.body) != 4 * frame.header.dimension or len(frame.header.scales):
        raise FrameError(
            f"The body has {len(frame.body):,} bytes and {len(frame.header.scales)} scales; {frame.header.dimension:,} "
            "float32 values take 4 bytes each and no scale."
        )
    if not all_finite(values(frame)):
        raise FrameError("The frame carries NaN or infinite values: the sender's training has diverged.")


def values(frame: Frame) -> npt.NDArray[np.float32]:
    """A view of a checked frame's values."""
    return np.frombuffer(frame.body, dtype="<f4")


def frame_size(dimension: int) -> int:
    """Bytes of a float32 frame of this dimension.

    >>> frame_size(3) == len(encode_float32(np.ones(3, dtype=np.float32)))
    True
    """
    return HEADER_SIZE + 4 * dimension + CRC_SIZE
