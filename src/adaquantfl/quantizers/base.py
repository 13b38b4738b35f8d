"""What a quantizer is: the facts that frames, rules and receivers need, and the two directions of its work.

`quantizers/uniform.py` is the paper's. CONTRIBUTING.md shows how another package brings one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..theory import MAX_LEVELS
from .segments import Segments

if TYPE_CHECKING:
    from .levels import Levels
    from .uniform import Prepared
    from .vectors import FloatVector, Stretch

Lengths = Sequence[int] | npt.NDArray[np.integer]

L2, LINF, NO_NORM = "l2", "linf", ""
MOST_BLOCK = 1 << 20  # elements of a rotated block
LARGEST_FLOAT = 2.0**127  # what a frame may decode to, at most: a little below the largest float32


@dataclass(frozen=True)
class Number:
    """What a receiver needs besides the scales, one for each segment or for the frame; wire: its type in a frame."""

    name: str
    per_segment: bool
    least: float
    most: float
    wire: str = "<f4"


class Quantizer(ABC):
    """A vector to signed integers and back. A subclass sets the facts, and defines `quantize`.

    >>> from adaquantfl.quantizers import find
    >>> find("uniform").tags, find("eden").most, find("stc").feedback
    ({'l2': 0, 'linf': 1}, 16, True)
    """

    name: str
    about: str = ""
    reference: str = ""
    tags: ClassVar[Mapping[str, int]]  # the frame's tag for each norm that it takes, the usual norm first
    most: int = MAX_LEVELS  # the largest s
    follows_rule: bool = True  # whether s is a number of levels, which a rule can choose
    own_levels: str = ""  # the configuration's key that is its s, where no rule chooses it
    stretches: bool = True  # whether levels can lie further apart than the norm / s
    unbiased: bool = True
    feedback: bool = False  # whether a client keeps what it left out and adds it to its next update
    least: float = 1.0  # levels with feedback: with fewer, everything could be rounded to 0, round after round
    linear: bool = False  # whether an element is its level times its segment's step
    divides: bool = True  # whether that step is scale / s, or the scale itself
    keyed: bool = False  # whether a receiver needs the stream key
    number: Number | None = None
    rotates: bool = False  # whether segments are blocks of 2^k elements, rotated
    reach: tuple[int, int] = (1, 0)  # (a, b): the largest level is a s + b
    from_paper: bool = False  # whether it is the paper's Q_s, whose bits the formula C_s counts
    balanced_by_update: bool = True  # whether balanced levels depend on the update, so that a server cannot know them

    @abstractmethod
    def quantize(
        self, x: FloatVector, s: int, key: int, segments: Lengths | None, stretch: Stretch, norm: str
    ) -> Levels:
        """Floats to levels. s, stretch and norm are ones that the facts allow; x, key and segments are not checked."""

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """The float32 vector that a receiver works with: where it is linear, each level times its segment's step."""
        if not self.linear:
            raise NotImplementedError(f"{self.name} is not linear in its levels, and has to define dequantize.")
        return levels.times(levels.scales.astype(np.float64) / (levels.s if self.divides else 1))

    def prepare(self, x: FloatVector, s: int, segments: Lengths | None, stretch: Stretch, norm: str) -> Prepared | None:
        """What codecs need to quantize and encode in one pass; None where they cannot, and `quantize` comes first."""
        return None

    def levels_for(
        self,
        s: float,
        lengths: npt.NDArray[np.int64],
        update: npt.NDArray[np.float32] | None = None,
        balanced: bool = False,
    ) -> tuple[int, Stretch]:
        """s and stretch, as `quantize` takes them, for a rule's number of levels, which need not be whole.

        lengths: of the segments. balanced: more levels for small segments, at the same number of non-zeros. A pure
        function of s, lengths and balanced, except that a quantizer with `balanced_by_update` needs the update too
        when balanced.

        >>> from adaquantfl.quantizers import find
        >>> lengths = np.array([10_000])
        >>> [find(name).levels_for(0.5, lengths) for name in ("uniform", "nearest", "eden")]
        [(1, 2.0), (1, 1.0), (1, 1.0)]
        >>> find("eden").levels_for(99.0, lengths)
        (16, 1.0)
        """
        if self.feedback:
            s = max(s, self.least)
        if not (self.stretches and self.follows_rule):
            return min(max(1, math.floor(s + 0.5)), self.most), 1.0
        if not balanced:
            return whole_levels(s, self.most)
        if update is None:
            raise QuantizeError(f"The balanced levels of {self.name} depend on the update: pass it.")
        from .balanced import balanced_stretch  # with it come the kernels

        return balanced_stretch(update, s, lengths, self.most)

    def error_share(
        self,
        x: npt.NDArray[np.float32],
        s: int,
        key: int,
        stretch: Stretch,
        segments: npt.NDArray[np.int64] | None,
        norm: str,
    ) -> float | None:
        """E||Q(x) - x||^2 / ||x||^2, exactly, where there is a closed form; None elsewhere.

        key: of the stream, for a quantizer whose rotation it decides.
        """
        return None

    def drawn_error(self, x: npt.NDArray[np.float32], levels: Levels) -> float:
        """||Q(x) - x||^2 / ||x||^2 of these levels; 0 where x is 0."""
        energy = float(np.sum(np.square(x, dtype=np.float64)))
        error = float(np.sum(np.square(levels.dequantize() - x, dtype=np.float64)))
        return error / energy if energy else 0.0

    def expected_error(self, s: int, stretch: Stretch, energies: npt.NDArray[np.float64]) -> float:
        """What `error_share` is without a look at the elements, where a rotation makes them Gaussian; NaN elsewhere.

        energies: the squared norm of each segment.
        """
        return math.nan

    @property
    def norms(self) -> tuple[str, ...]:
        """The norms to choose from."""
        return tuple(norm for norm in self.tags if norm != NO_NORM)

    @property
    def takes_balanced(self) -> bool:
        """Whether each segment can have its own number of levels (scope "balanced")."""
        return self.follows_rule and self.stretches and not self.feedback and not self.rotates

    def norm(self, wanted: str | None) -> str:
        """The norm to use; None is the quantizer's usual one. QuantizeError for a norm that it does not take."""
        if wanted is None:
            return next(iter(self.tags))
        if wanted not in self.norms:
            takes = f"it takes {' or '.join(map(repr, self.norms))}" if self.norms else "it has no norm to choose"
            raise QuantizeError(f"norm={wanted!r}: {self.name} does not know it; {takes}.")
        return wanted

    def top(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> int:
        """The largest magnitude of a level; numbers: those of `number`.

        >>> from adaquantfl.quantizers import find
        >>> find("uniform").top(3), find("lattice").top(3), find("centroid").top(1, np.array([3.0]))
        (3, 8, 6)
        """
        return self.reach[0] * s + self.reach[1]

    def growth(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> float:
        """How many times its segment's scale an element can be, at most; before it is rotated, if it `rotates`.

        >>> from adaquantfl.quantizers import find
        >>> find("uniform").growth(3), find("lattice").growth(1), find("eden").growth(16) < 4
        (1.0, 5.5, True)
        """
        return self.top(s, numbers) / (s if self.divides else 1)

    def bound(
        self,
        s: int,
        scales: npt.NDArray[np.float32],
        numbers: npt.NDArray[np.float32] | None,
        segments: npt.NDArray[np.int64] | None,
        dimension: int,
    ) -> float:
        """What no element of a frame with these facts can exceed in size.

        It is growth x scale. A rotation of n elements can put all of them into one, sqrt(n) times as large.
        """
        largest = float(scales[0] if len(scales) == 1 else scales.max()) * self.growth(s, numbers)
        return largest * math.sqrt(dimension if segments is None else segments.max()) if self.rotates else largest

    def can_send(
        self, found: npt.NDArray[np.int64] | None, asked: npt.NDArray[np.int64] | None, dimension: int
    ) -> bool:
        """Whether a frame can have the segments `found` where `asked` were asked for; rotation cuts them into blocks.

        >>> from adaquantfl.quantizers import find
        >>> blocks, asked = np.array([8, 2]), np.array([10])
        >>> [find(name).can_send(blocks, asked, 10) for name in ("uniform", "centroid")]
        [False, True]
        """
        if not self.rotates:
            return (found is None) == (asked is None) and np.array_equal(found, asked)  # type: ignore[arg-type]
        from .rotation import LARGEST_BLOCK, blocks  # with it come the kernels

        cut = Segments.of(asked, dimension)
        return any(np.array_equal(found, blocks(cut, each).lengths) for each in (LARGEST_BLOCK, MOST_BLOCK))  # type: ignore[arg-type]

    def numbers(self, segments: int) -> int:
        """How many further numbers a frame of this many segments has."""
        if self.number is None:
            return 0
        return segments if self.number.per_segment else 1


def are_blocks(lengths: npt.NDArray[np.int64]) -> bool:
    """Whether these are lengths that can be rotated: powers of two, 2^20 at most."""
    return not ((lengths > MOST_BLOCK).any() or (lengths & (lengths - 1)).any())


def whole_levels(s: float, most: int = MAX_LEVELS) -> tuple[int, float]:
    """A number of levels that need not be whole, as `quantize` takes it: s, `most` at most, and stretch.

    >>> whole_levels(3), whole_levels(2.5), whole_levels(0.5), whole_levels(300, most=127)
    ((3, 1.0), (3, 1.2), (1, 2.0), (127, 1.0))
    """
    whole = min(math.ceil(s), most)
    return whole, max(whole / s, 1.0)
