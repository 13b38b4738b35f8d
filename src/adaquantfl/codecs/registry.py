"""Which codec reads and writes which frame: the tag in the header decides. Other packages can bring codecs.

The built-in ones are the core's, core/*.c:

- `fixed`: the paper's code, ceil(log2(s + 1)) bits for a level and one for its sign;
- `sparse`: gaps between the levels that are not zero, in adaptive Golomb codes: for updates that are almost all zero;
- `dense`: rANS, within 1 % of the entropy, for vectors with more than a tenth of non-zeros;
- `auto`: the smallest of the three, chosen from the histogram of the levels and never by encoding twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import core
from ..core import Values
from ..errors import FrameError
from ..open_registry import Registry
from ..quantizers.levels import Levels, level_dtype
from .frame import Frame, Header, Known, framed

GROUP = "adaquantfl.codecs"  # of the entry points of other packages


@dataclass(frozen=True)
class BuiltIn:
    """A codec of the core, by its number there. That of `auto` is no tag: it leaves the writing to the others."""

    NAME: str
    TAG: int

    def encode(self, levels: Levels, known: Known | None = None) -> bytes:
        """Levels to a frame, without what its receiver knows."""
        header, values = Header.of(levels, self.TAG), np.ascontiguousarray(levels.values)
        return core.encode(values, self.TAG, **header.plan(known))

    def read(self, frame: Frame) -> Values:
        """The levels of a frame; FrameError where its body is damaged."""
        values = np.empty(frame.header.dimension, dtype=level_dtype(frame.header.top))
        core.decode(frame.data, frame.facts, values)
        return values


class Codec(ABC):
    """A codec of another package. It is lossless, so it never changes a trajectory."""

    NAME: ClassVar[str]
    TAG: ClassVar[int]  # 128 to 254

    @abstractmethod
    def body(self, levels: Levels) -> bytes:
        """Levels to the body of a frame."""

    @abstractmethod
    def levels(self, frame: Frame) -> Values:
        """A frame's body to levels, an array of signed integers; FrameError says why it is refused."""

    def encode(self, levels: Levels, known: Known | None = None) -> bytes:
        """Levels to a frame."""
        return framed(Header.of(levels, self.TAG), self.body(levels), known)

    def read(self, frame: Frame) -> Values:
        """The levels of a frame, checked."""
        values, top = self.levels(frame), frame.header.top
        if values.shape != (frame.header.dimension,):
            raise FrameError(f"The body has levels of shape {values.shape}; the dimension is {frame.header.dimension}.")
        if values.max() > top or values.min() < -top:
            raise FrameError(f"The levels reach from {values.min()} to {values.max()}; the largest is {top}.")
        return np.ascontiguousarray(values, dtype=level_dtype(top))


AUTO = BuiltIn("auto", core.AUTO)
BUILT_IN = (AUTO, BuiltIn("fixed", core.FIXED), BuiltIn("sparse", core.SPARSE), BuiltIn("dense", core.DENSE))


def _facts(codec: object) -> tuple[str, Iterable[int]]:
    if not isinstance(codec, BuiltIn | Codec):
        raise FrameError(f"{codec!r} is not a codec: pass a name, or an instance of Codec.")
    if not hasattr(codec, "TAG"):
        raise FrameError(f"The codec {codec.NAME!r} has no TAG, by which its frames are read.")
    return codec.NAME, () if codec is AUTO else (codec.TAG,)


def _table() -> Registry[BuiltIn | Codec]:
    return Registry("codec", GROUP, lambda: BUILT_IN, _facts, FrameError)


_TABLE = _table()


def find(codec: str | BuiltIn | Codec) -> BuiltIn | Codec:
    """Who writes frames under this name, or the object itself, which is then registered.

    >>> find("sparse").NAME
    'sparse'
    """
    return _TABLE.find(codec)


def by_tag(frame: Frame) -> BuiltIn | Codec:
    """The codec that reads this frame; FrameError where its tag is unknown."""
    tag = frame.header.codec
    found = _TABLE.by_tag(tag)
    if found is None:
        raise FrameError(f"Codec tag {tag} is unknown. Install or register the package that the sender has.")
    return found


def names() -> tuple[str, ...]:
    """What `codec` may be called.

    >>> names()[:4]
    ('auto', 'fixed', 'sparse', 'dense')
    """
    return _TABLE.names()


def all_codecs() -> list[BuiltIn | Codec]:
    """All but `auto`."""
    return [find(name) for name in names() if name != AUTO.NAME]


def register(codec: BuiltIn | Codec) -> BuiltIn | Codec:
    """Make a codec of another package known by its name and its tag, which is from 128 to 254.

    It is known in this process alone; an entry point of the group "adaquantfl.codecs" makes it known in every one.
    FrameError where a name or a tag is taken.

    >>> register(find("dense")).NAME  # known already
    'dense'
    """
    return _TABLE.register(codec)
