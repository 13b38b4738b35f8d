"""What a quantizer is: traits that frames, rules and receivers read, and four methods.

`quantizers/uniform.py` is the paper's. CONTRIBUTING.md shows how another package brings one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..theory import MAX_LEVELS
from .segments import Segments

if TYPE_CHECKING:
    from ..codecs.frame import Header
    from .levels import Levels
    from .vectors import FloatVector, Stretch

Lengths = Sequence[int] | npt.NDArray[np.integer]
Vector = npt.NDArray[np.float32]

L2, LINF, NO_NORM = "l2", "linf", ""
MOST_BLOCK = 1 << 20  # elements of a rotated block
LARGEST_FLOAT = 2.0**127  # what a frame may decode to, at most: a little below the largest float32


@dataclass(frozen=True)
class Number:
    """One more number that a frame carries, a float32 from `least` to `most`."""

    name: str
    least: float
    most: float


@dataclass(frozen=True)
class Traits:
    """Facts about a quantizer.

    Attributes:
        about: What it does, in a line.
        reference: Who published it.
        most: The largest s.
        follows_rule: Whether s is a number of levels, which a rule can choose.
        own_levels: The setting that is its s, where no rule chooses it.
        stretches: Whether levels can lie further apart than the norm / s.
        unbiased: Whether the mean over the random numbers is the vector itself.
        feedback: Whether a client keeps what it left out and adds it to its next update.
        least: Levels with feedback: with fewer, everything could be rounded to 0, round after round.
        balanced: Whether each segment can have its own number of levels.
        balanced_by_update: Whether balanced levels depend on the update, so that a server cannot know s.
        linear: Whether an element is its level times its segment's step.
        divides: Whether that step is scale / s, or the scale itself.
        keyed: Whether a receiver needs the stream key.
        rotates: Whether segments are blocks of 2^k elements, rotated.
        number: What a frame carries besides the scales.
        reach: (a, b): the largest level is a s + b.
        clip: Where it is not 0, the largest level is clip s / number instead, rounded up.
        from_paper: Whether it is the paper's Q_s, whose bits the formula C_s counts.
    """

    about: str = ""
    reference: str = ""
    most: int = MAX_LEVELS
    follows_rule: bool = True
    own_levels: str = ""
    stretches: bool = True
    unbiased: bool = True
    feedback: bool = False
    least: float = 1.0
    balanced: bool = False
    balanced_by_update: bool = True
    linear: bool = False
    divides: bool = True
    keyed: bool = False
    rotates: bool = False
    number: Number | None = None
    reach: tuple[int, int] = (1, 0)
    clip: float = 0.0
    from_paper: bool = False


@dataclass(frozen=True)
class Count:
    """A target: this number of levels of the norm, which need not be whole."""

    s: float


@dataclass(frozen=True)
class MaxError:
    """A target: the coarsest levels whose squared error is at most this share of the vector's energy."""

    error: float


@dataclass(frozen=True)
class Resolution:
    """A target: FedDQ's bits. The range of the elements, divided by this, is rounded up to whole bits."""

    step: float


Target = Count | MaxError | Resolution


class Quantizer(ABC):
    """A vector to signed integers and back. A subclass sets name, tags and traits, and defines `quantize`.

    tags: the frame's tag for each norm that it takes, the usual norm first.

    >>> from adaquantfl.quantizers import find
    >>> find("uniform").tags, find("eden").traits.most, find("stc").traits.feedback
    ({'l2': 0, 'linf': 1}, 16, True)
    """

    name: str
    tags: ClassVar[Mapping[str, int]]
    traits: Traits = Traits()

    @abstractmethod
    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Floats to levels. s, stretch and norm are ones that the traits allow; x, key and segments are not checked."""

    def dequantize(self, levels: Levels) -> Vector:
        """The float32 vector that a receiver works with: where it is linear, each level times its segment's step."""
        if not self.traits.linear:
            raise NotImplementedError(f"{self.name} is not linear in its levels, and has to define dequantize.")
        return levels.times(levels.steps)

    def pieces(self, levels: Levels) -> Iterator[tuple[slice, Vector]]:
        """What `dequantize` returns, in pieces, each of which is valid until the next; it may be overwritten."""
        yield slice(0, levels.dimension), levels.dequantize()

    def levels_for(
        self,
        target: Target,
        segments: npt.NDArray[np.int64],
        x: Vector | None = None,
        balanced: bool = False,
        key: int = 0,
        norm: str = "",
    ) -> tuple[int, Stretch]:
        """Return s and stretch, as `quantize` takes them, for a target.

        segments: the lengths of the segments, or one, the whole vector's. x: the vector; a `Count` of levels does
        without it, except that balanced levels may depend on it (`balanced_by_update`). balanced: more levels for small
        segments, at the same number of non-zeros. key, norm: what the vector would be quantized with.

        >>> from adaquantfl.quantizers import find
        >>> lengths = np.array([10_000])
        >>> [find(name).levels_for(Count(0.5), lengths) for name in ("uniform", "nearest", "eden")]
        [(1, 2.0), (1, 1.0), (1, 1.0)]
        >>> find("eden").levels_for(Count(99.0), lengths)
        (16, 1.0)
        """
        if isinstance(target, Count):
            return self.levels_for_count(target.s, segments, x, balanced)
        from .choice import levels_within  # which imports this module

        return levels_within(self, target, segments, x, balanced, key, norm)

    def levels_for_count(
        self, count: float, segments: npt.NDArray[np.int64], x: Vector | None, balanced: bool
    ) -> tuple[int, Stretch]:
        """Return s and stretch for this number of levels of the norm, which need not be whole; see `levels_for`."""
        s = max(count, self.traits.least) if self.traits.feedback else count
        if not (self.traits.stretches and self.traits.follows_rule):
            return min(max(1, math.floor(s + 0.5)), self.traits.most), 1.0
        if not balanced:
            return whole_levels(s, self.traits.most)
        if x is None:
            raise QuantizeError(f"The balanced levels of {self.name} depend on the update: pass it.")
        from .balanced import balanced_stretch  # which imports this module

        return balanced_stretch(x, s, segments, self.traits.most)

    def error_of(self, x: Vector, levels: Levels) -> float:
        """||Q(x) - x||^2 / ||x||^2 of these levels; a subclass may know it without decoding them."""
        from .choice import drawn_error  # which imports this module

        return drawn_error(x, levels)

    def expected_error(self, s: int, stretch: Stretch, energies: npt.NDArray[np.float64]) -> float:
        """About the same without a look at the elements, by the energies of the segments; NaN: not known."""
        return math.nan

    def bound(self, header: Levels | Header) -> float:
        """Return what no element can exceed in size: by default the largest level, before it is rotated.

        >>> import adaquantfl as aq
        >>> [aq.quantize(np.ones(4, np.float32), 1, 0, quantizer=name).bound for name in ("uniform", "lattice")]
        [2.0, 11.0]
        """
        reached = top(self.traits, header.s, header.number)
        return within_scales(self.traits, header, reached / (header.s if self.traits.divides else 1))


def top(traits: Traits, s: int, number: float | None = None) -> int:
    """The largest magnitude of a level.

    >>> from adaquantfl.quantizers import find
    >>> top(find("uniform").traits, 3), top(find("lattice").traits, 3)
    (3, 8)
    >>> top(find("centroid").traits, 1, 3.0)
    6
    """
    if traits.clip and number is not None:
        return math.ceil(traits.clip * s / number)
    return traits.reach[0] * s + traits.reach[1]


def within_scales(traits: Traits, header: Levels | Header, growth: float) -> float:
    """What no element exceeds where none is above `growth` times its scale before it is rotated.

    A rotation of n elements can put all of them into one, sqrt(n) times as large.
    """
    scales, segments = header.scales, header.segments
    largest = float(scales[0] if len(scales) == 1 else scales.max()) * growth
    return largest * math.sqrt(header.dimension if segments is None else segments.max()) if traits.rotates else largest


def norms_of(quantizer: Quantizer) -> tuple[str, ...]:
    """The norms to choose from."""
    return tuple(norm for norm in quantizer.tags if norm != NO_NORM)


def norm_of(quantizer: Quantizer, wanted: str | None) -> str:
    """The norm to use; None is the quantizer's usual one. QuantizeError for a norm that it does not take."""
    if wanted is None:
        return next(iter(quantizer.tags))
    norms = norms_of(quantizer)
    if wanted not in norms:
        takes = f"it takes {' or '.join(map(repr, norms))}" if norms else "it has no norm to choose"
        raise QuantizeError(f"norm={wanted!r}: {quantizer.name} does not know it; {takes}.")
    return wanted


def can_send(
    traits: Traits, found: npt.NDArray[np.int64] | None, asked: npt.NDArray[np.int64] | None, dimension: int
) -> bool:
    """Whether a frame can have the segments `found` where `asked` were asked for; rotation cuts them into blocks.

    >>> from adaquantfl.quantizers import find
    >>> blocks, asked = np.array([8, 2]), np.array([10])
    >>> [can_send(find(name).traits, blocks, asked, 10) for name in ("uniform", "centroid")]
    [False, True]
    """
    if not traits.rotates:
        return (found is None) == (asked is None) and np.array_equal(found, asked)  # type: ignore[arg-type]
    from .rotation import LARGEST_BLOCK, blocks  # which imports this module

    cut = Segments.of(asked, dimension)
    return any(np.array_equal(found, blocks(cut, each).lengths) for each in (LARGEST_BLOCK, MOST_BLOCK))  # type: ignore[arg-type]


def whole_levels(s: float, most: int = MAX_LEVELS) -> tuple[int, float]:
    """A number of levels that need not be whole, as `quantize` takes it: s, `most` at most, and stretch.

    >>> whole_levels(3), whole_levels(2.5), whole_levels(0.5), whole_levels(300, most=127)
    ((3, 1.0), (3, 1.2), (1, 2.0), (127, 1.0))
    """
    whole = min(math.ceil(s), most)
    return whole, max(whole / s, 1.0)
