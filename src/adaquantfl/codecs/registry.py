"""Which codec reads and writes which frame: the tag in the header decides."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..names import unknown
from ..quantizers.levels import Levels
from ..quantizers.uniform import Prepared
from . import auto, dense, fixed, sparse
from .frame import Frame


class Body(Protocol):
    """A frame's body that has been checked from end to end: reading it cannot fail any more."""

    @property
    def nbytes(self) -> int:
        """Memory that it keeps, beside the frame."""

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        """Write the levels into `values`."""

    def add(
        self,
        steps: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int64],
        total: npt.NDArray[np.float32],
        first: int,
        last: int,
    ) -> None:
        """total[i] += steps[segment of i] x level i, for the tiles first to last; on the caller's thread alone."""


class Codec(Protocol):
    """What a codec module offers. Each is lossless on Levels, so the choice never changes a trajectory."""

    NAME: str
    TAG: int

    def encode(self, levels: Levels) -> bytes:
        """Levels to a frame."""

    def compress(
        self, ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None
    ) -> bytes:
        """Floats to the same frame; `fixed` and `sparse` do it without writing the levels to memory."""

    def open_body(self, frame: Frame) -> Body:
        """Check the body; FrameError says why it is refused."""


class Writer(Protocol):
    """What it takes to make frames: the codecs, and `auto`, which leaves the writing to one of them."""

    def encode(self, levels: Levels) -> bytes: ...

    def compress(
        self, ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: npt.NDArray[np.int64] | None
    ) -> bytes: ...


CODECS: dict[int, Codec] = {codec.TAG: codec for codec in (fixed, sparse, dense)}
WRITERS: dict[str, Writer] = {"auto": auto, **{codec.NAME: codec for codec in CODECS.values()}}


def by_name(name: str) -> Writer:
    """Who writes frames under this name."""
    if name not in WRITERS:
        raise FrameError(unknown("codec", name, WRITERS))
    return WRITERS[name]


def by_tag(frame: Frame) -> Codec:
    """The codec that reads this frame."""
    codec = CODECS.get(frame.header.codec)
    if codec is None:
        raise FrameError(f"Codec tag {frame.header.codec} is unknown; known are {sorted(CODECS)}.")
    return codec
