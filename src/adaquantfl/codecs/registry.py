"""Which codec reads and writes which frame: the tag in the header decides. Other packages can bring codecs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..open_registry import OUTSIDE_TAGS, Registry
from ..quantizers.levels import Levels
from ..quantizers.uniform import Prepared
from .frame import TILE, Frame, Header, Known, framed
from .header import Floats, Lengths, Offsets

BUILT_IN = ("auto", "fixed", "sparse", "dense")
GROUP = "adaquantfl.codecs"  # of the entry points of other packages


class Body(Protocol):
    """A frame's body that has been checked from end to end: reading it cannot fail any more."""

    @property
    def nbytes(self) -> int:
        """Memory that it keeps, besides the frame."""

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        """Write the levels into `values`."""

    def add(self, steps: Floats, offsets: Offsets, total: Floats, first: int, last: int) -> None:
        """total[i] += steps[segment of i] x level i, for the tiles first to last; on the caller's thread alone."""


class Writer(Protocol):
    """What it takes to make frames: the codecs, and `auto`, which leaves the writing to one of them."""

    NAME: str

    def encode(self, levels: Levels, known: Known | None = None) -> bytes:
        """Levels to a frame, without what its receiver knows."""

    def compress(
        self, ready: Prepared, s: int, low: np.uint32, high: np.uint32, segments: Lengths, known: Known | None = None
    ) -> bytes:
        """Floats to the same frame; `fixed` and `sparse` do it without writing the levels to memory."""
        values = ready.levels(0, ready.segments.dimension, s, low, high)
        return self.encode(ready.as_levels(values, s, segments), known)


class Codec(Writer, Protocol):
    """What a codec offers: a module here, a subclass elsewhere. It is lossless, so it never changes a trajectory."""

    TAG: int

    def body(self, levels: Levels) -> bytes:
        """Levels to the body of a frame; what a subclass has to define, besides `open_body`."""

    def encode(self, levels: Levels, known: Known | None = None) -> bytes:
        return framed(Header.of(levels, self.TAG), [self.body(levels)], known)

    def open_body(self, frame: Frame) -> Body:
        """Check the body; FrameError says why it is refused."""


@dataclass(frozen=True)
class DecodedBody:
    """The body of a codec that has no faster way to add than to decode first."""

    values: npt.NDArray[np.signedinteger]

    @staticmethod
    def of(frame: Frame, values: npt.NDArray[np.signedinteger]) -> DecodedBody:
        """Levels that were read from a frame; FrameError where they cannot be its levels."""
        top = frame.header.top
        if values.shape != (frame.header.dimension,):
            raise FrameError(f"The body has levels of shape {values.shape}; the dimension is {frame.header.dimension}.")
        if values.max() > top or values.min() < -top:
            raise FrameError(f"The levels reach from {values.min()} to {values.max()}; the largest is {top}.")
        return DecodedBody(values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def decode(self, values: npt.NDArray[np.signedinteger]) -> None:
        values[:] = self.values

    def add(self, steps: Floats, offsets: Offsets, total: Floats, first: int, last: int) -> None:
        here = slice(first * TILE, min(last * TILE, len(self.values)))
        bounds: npt.NDArray[np.int64] = np.clip(offsets, here.start, here.stop)
        each = np.repeat(steps, np.diff(bounds))
        total[here] += each * self.values[here].astype(np.float32)


def _facts(writer: object) -> tuple[str, Mapping[int, str]]:
    given: Any = writer
    if not all(hasattr(given, name) for name in ("NAME", "encode", "compress")):
        raise FrameError(f"{writer!r} is not a codec: pass a name, or an instance of Codec.")
    if not hasattr(given, "open_body"):  # like `auto`, it leaves the writing to codecs
        return given.NAME, {}
    if not hasattr(given, "TAG"):
        raise FrameError(f"The codec {given.NAME!r} has no TAG, by which its frames are read.")
    return given.NAME, {given.TAG: ""}


def _table() -> Registry[Writer]:
    def built_in() -> Iterable[Writer]:
        return (cast(Writer, import_module(f"{__package__}.{name}")) for name in BUILT_IN)

    return Registry("codec", GROUP, built_in, _facts, FrameError)


_TABLE = _table()


def find(codec: str | Writer) -> Writer:
    """Who writes frames under this name, or the object itself, which is then registered.

    >>> find("sparse").NAME
    'sparse'
    """
    return _TABLE.find(codec)


def by_tag(frame: Frame) -> Codec:
    """The codec that reads this frame; FrameError where its tag is unknown."""
    tag = frame.header.codec
    found = _TABLE.by_tag(tag)
    if found is None:
        hint = " Install or register the package that the sender has." if tag in OUTSIDE_TAGS else ""
        raise FrameError(f"Codec tag {tag} is unknown; known are {_TABLE.tags()}.{hint}")
    return cast(Codec, found[0])


def names() -> tuple[str, ...]:
    """What `codec` may be called.

    >>> names()[:4]
    ('auto', 'fixed', 'sparse', 'dense')
    """
    return _TABLE.names()


def all_codecs() -> list[Codec]:
    """All but `auto`, in the order of their tags."""
    return [cast(Codec, pair[0]) for tag in _TABLE.tags() if (pair := _TABLE.by_tag(tag))]


def register(codec: Writer) -> Writer:
    """Make a codec of another package known by its name and its tag, which is from 128 to 254.

    It is known in this process alone; an entry point of the group "adaquantfl.codecs" makes it known in every one.
    FrameError where a name or a tag is taken.

    >>> register(find("dense")).NAME  # known already
    'dense'
    """
    return _TABLE.register(codec)
