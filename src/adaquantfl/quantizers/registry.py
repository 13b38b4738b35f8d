"""Which quantizers there are: what each is called, what its frames carry, and who came up with it.

Plain facts, light to import: a quantizer's own module, with its kernels, is loaded when it is first used. It offers
`quantize` and `dequantize`; see `Rule`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..errors import QuantizeError
from ..names import unknown
from ..theory import MAX_LEVELS

if TYPE_CHECKING:
    from .levels import Levels
    from .vectors import FloatVector, Stretch

L2, LINF, NO_NORM = "l2", "linf", ""
LARGEST_BLOCK = 65_536  # elements that are rotated together; more do not fit a core's cache ...
MOST_BLOCK = 1 << 20  # ... but have fewer scales, where those are most of a frame
CLIP = 16.0  # rms: where `centroid` cuts rotated coordinates off
MOST_SCALE = 2.0**107  # of what is not linear in the levels: nothing that comes out of such a scale leaves float32
FLOAT32_TAG = 255


@dataclass(frozen=True)
class Number:
    """A float32 that a receiver needs beside the scales, one for each segment or one for the whole frame."""

    name: str
    per_segment: bool
    least: float
    most: float


@dataclass(frozen=True)
class Quantizer:
    """One line of the table. `tags` has the frame's tag for each norm that the quantizer takes, the usual one first."""

    name: str
    about: str
    reference: str
    tags: Mapping[str, int]
    most: int = MAX_LEVELS  # the largest s
    follows_rule: bool = True  # whether s is a number of levels, which a schedule can choose
    stretches: bool = True
    unbiased: bool = True
    feedback: bool = False  # whether a client keeps what it left out and adds it to its next update
    linear: bool = False  # whether an element is its level times a step of its segment
    divides: bool = True  # whether that step is scale / s, or the scale itself
    keyed: bool = False  # whether a receiver needs the stream key
    number: Number | None = None
    rotates: bool = False  # whether a segment is a block of 2^k elements, rotated
    reach: tuple[int, int] = field(default=(1, 0))  # (a, b): the largest level is a s + b

    @property
    def norms(self) -> tuple[str, ...]:
        return tuple(norm for norm in self.tags if norm != NO_NORM)

    @property
    def spreads(self) -> bool:
        """Whether each segment can have levels of its own number (scope "balanced")."""
        return self.stretches and not self.feedback and (not self.rotates or self.name == "centroid")

    def norm(self, wanted: str | None) -> str:
        """The norm to use; None is the quantizer's usual one. QuantizeError where it has not the one that is wanted."""
        if wanted is None:
            return next(iter(self.tags))
        if wanted not in self.norms:
            takes = f"it takes {' or '.join(map(repr, self.norms))}" if self.norms else "it has no norm to choose"
            raise QuantizeError(f"norm={wanted!r}: {self.name} does not know it; {takes}.")
        return wanted

    def top(self, s: int, numbers: npt.NDArray[np.float32] | None = None) -> int:
        """The largest magnitude of a level; numbers: those of `number`.

        >>> QUANTIZERS["uniform"].top(3), QUANTIZERS["lattice"].top(3), QUANTIZERS["centroid"].top(1, np.array([3.0]))
        (3, 8, 6)
        """
        if self.name == "centroid" and numbers is not None:
            return math.ceil(CLIP * s / float(numbers[0]))
        return self.reach[0] * s + self.reach[1]

    def numbers(self, segments: int) -> int:
        """How many further float32 numbers a frame of so many segments has."""
        if self.number is None:
            return 0
        return segments if self.number.per_segment else 1


class Rule(Protocol):
    """What a quantizer's module offers."""

    def quantize(
        self,
        x: FloatVector,
        s: int,
        key: int,
        segments: Sequence[int] | npt.NDArray[np.integer] | None,
        stretch: Stretch,
        norm: str,
    ) -> Levels:
        """Floats to levels. s and norm are ones that the table allows."""

    def dequantize(self, levels: Levels) -> npt.NDArray[np.float32]:
        """What a receiver works with."""


_ALL = (
    Quantizer(
        "uniform",
        "the paper's: s equal steps of the norm, rounded at random",
        "Jhunjhunwala et al. 2021, eq. 4 (Alistarh et al. 2017, QSGD)",
        {L2: 0, LINF: 1},
        linear=True,
    ),
    Quantizer(
        "rotated",
        "uniform after a random rotation",
        "Suresh, Yu, Kumar, McMahan 2017",
        {LINF: 2, L2: 3},
        keyed=True,
        rotates=True,
    ),
    Quantizer(
        "dithered",
        "uniform's levels; the receiver takes part of the random numbers off again",
        "subtractive dither (Roberts 1962), with a gain of our own",
        {L2: 4, LINF: 5},
        keyed=True,
        number=Number("gain", per_segment=True, least=0.0, most=1.5),
    ),
    Quantizer(
        "lattice",
        "pairs of elements on a hexagonal lattice, subtractive dither",
        "Shlezinger, Chen, Eldar, Poor, Cui 2020, UVeQFed",
        {L2: 6, LINF: 7},
        keyed=True,
        reach=(2, 2),
    ),
    Quantizer(
        "eden",
        "rotated, then the nearest of 2 s Lloyd-Max centroids of a Gaussian",
        "Vargaftik et al. 2022, EDEN",
        {NO_NORM: 8},
        most=16,
        stretches=False,
        keyed=True,
        rotates=True,
    ),
    Quantizer(
        "centroid",
        "ours: rotated, to the nearest multiple of a step, put back at the mean of a Gaussian in its cell",
        "this software; EDEN's scale, an entropy coder's levels",
        {NO_NORM: 9},
        keyed=True,
        number=Number("stretch", per_segment=False, least=1.0, most=2.0**20),
        rotates=True,
    ),
    Quantizer(
        "terngrad",
        "three levels of the largest element, after clipping at 2.5 standard deviations (biased)",
        "Wen et al. 2017, TernGrad",
        {LINF: 10},
        most=1,
        follows_rule=False,
        unbiased=False,
        linear=True,
    ),
    Quantizer(
        "natural",
        "levels that halve: norm, norm / 2, norm / 4, ..., rounded at random",
        "Horvath et al. 2019, natural dithering",
        {L2: 11, LINF: 12},
        most=127,
    ),
    Quantizer(
        "stc",
        "the largest 1/s of the elements, at plus or minus their mean size (biased; with error feedback)",
        "Sattler, Wiedemann, Mueller, Samek 2019, STC",
        {NO_NORM: 13},
        follows_rule=False,
        stretches=False,
        unbiased=False,
        feedback=True,
        linear=True,
        divides=False,
        reach=(0, 1),
    ),
    Quantizer(
        "nearest",
        "uniform's steps, rounded to the nearest: no random numbers (biased; with error feedback)",
        "plain rounding, what int8 casts and group-wise quantizers do",
        {LINF: 14},
        unbiased=False,
        feedback=True,
        linear=True,
    ),
)
QUANTIZERS: dict[str, Quantizer] = {quantizer.name: quantizer for quantizer in _ALL}
BY_TAG: dict[int, tuple[Quantizer, str]] = {tag: (q, norm) for q in _ALL for norm, tag in q.tags.items()}
if len(BY_TAG) != sum(len(q.tags) for q in _ALL) or FLOAT32_TAG in BY_TAG:
    raise AssertionError("Two quantizers have the same tag.")


def find(name: str) -> Quantizer:
    """The quantizer of this name; QuantizeError with the nearest name where there is none.

    >>> find("eden").most
    16
    """
    if name not in QUANTIZERS:
        raise QuantizeError(unknown("quantizer", name, QUANTIZERS))
    return QUANTIZERS[name]


def load(name: str) -> Rule:
    """The module of a quantizer."""
    return cast(Rule, importlib.import_module(f".{name}", __package__))
