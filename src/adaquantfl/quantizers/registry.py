"""Which quantizers there are: by name, by the tag in a frame, and from other packages."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from ..errors import FrameError, QuantizeError
from ..open_registry import Registry
from .base import Quantizer

BUILT_IN = ("uniform", "rotated", "lattice", "centroid", "fitted", "rivals")  # the files of this package's
GROUP = "adaquantfl.quantizers"  # of the entry points of other packages
FLOAT32_TAG = 255  # values that are not quantized


def _facts(quantizer: object) -> tuple[str, Iterable[int]]:
    if not isinstance(quantizer, Quantizer):
        raise QuantizeError(f"{quantizer!r} is not a quantizer: pass a name, or an instance of Quantizer.")
    if not quantizer.tags:
        raise QuantizeError(f"The quantizer {quantizer.name!r} has no tags: set one for each norm that it takes.")
    return quantizer.name, quantizer.tags.values()


def _table() -> Registry[Quantizer]:
    def built_in() -> Iterable[Quantizer]:
        return (each for name in BUILT_IN for each in import_module(f"{__package__}.{name}").QUANTIZERS)

    return Registry("quantizer", GROUP, built_in, _facts, QuantizeError)


_TABLE = _table()


def find(quantizer: str | Quantizer) -> Quantizer:
    """The quantizer of this name, or the object itself, which is then registered.

    QuantizeError with the nearest name where there is none.

    >>> find("eden").traits.most
    16
    """
    return _TABLE.find(quantizer)


def by_tag(tag: int) -> tuple[Quantizer, str]:
    """The quantizer and the norm of a frame with this tag; FrameError where it is unknown.

    >>> quantizer, norm = by_tag(1)
    >>> quantizer.name, norm
    ('uniform', 'linf')
    """
    found = _TABLE.by_tag(tag)
    if found is None:
        raise FrameError(f"Quantizer tag {tag} is unknown. Install or register the package that the sender has.")
    return found, next(norm for norm, each in found.tags.items() if each == tag)


def names() -> tuple[str, ...]:
    """The names of all quantizers, the built-in ones first.

    >>> names()[:3]
    ('uniform', 'rotated', 'lattice')
    """
    return _TABLE.names()


def register(quantizer: Quantizer) -> Quantizer:
    """Make a quantizer of another package known by its name and its tags, which are from 128 to 254.

    It is known in this process alone; an entry point of the group "adaquantfl.quantizers" makes it known in every one.
    QuantizeError where a name or a tag is taken.

    >>> register(find("uniform")).name  # known already
    'uniform'
    """
    return _TABLE.register(quantizer)
