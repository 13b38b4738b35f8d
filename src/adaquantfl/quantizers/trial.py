"""Which form of `mixed` is best for each block of an update: the one with the least squared error at equal bytes."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..threads import over_ranges
from .base import MOST_BLOCK
from .dithered import inverses, round_pieces
from .forms import DITHERED, HEXAGON_ERROR, LATTICE, WIDTHS, Floats, as_sent, to_lattice, width
from .gaussian import step_bias, step_error, step_rate
from .rotation import LARGEST_BLOCK, blocks
from .segments import Segments
from .streams import split_key
from .vectors import square_sums

LEAST_BLOCK = 256  # elements of a rotated block; shorter segments are small
FINEST = 32_768  # levels of a norm: a point of the lattice may have a larger number than that
_LARGE = 64.0  # elements that share a rotated block's energy, at least: sums of fewer are not Gaussian
_TINY = 1e-60  # energy of a block below which its elements leave the range of float32 when they are scaled
_FEWEST = 4.0  # coordinates that are not 0, of as many as there are large elements: with fewer the formulas are off
_BIAS = 0.01  # of the error: the most that the square of the bias may be
_LATTICE_BITS = 1.5  # per element: with fewer the lattice never was the best
COARSE = 64.0  # rms: with steps from here on the scales of blocks of 2^16 elements would cost too much
SIDE_BITS = 72.0  # of a further segment: its scale, its form and its length
_SMALL_SHARE = 1 / 32  # of the frame, for small segments
_MOST_FINER = 64.0  # times as fine as asked

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trial:
    """An update in dithered levels, and what they cost in each unit: a block, or the rest of a segment."""

    units: Segments
    owner: npt.NDArray[np.int64]  # the segment of each unit
    steps: Floats
    values: npt.NDArray[np.int32]
    spread: Floats  # the sum of p (1 - p) of each unit: see `dithered.py`
    bits: Floats
    forms: npt.NDArray[np.int64]

    @staticmethod
    def of(x: Vector, asked: Segments, steps: Floats, key: int) -> Trial:
        """With these steps of the segments; small segments are quantized more finely."""
        rms = np.sqrt(square_sums(x, asked) / asked.lengths)
        units = units_of(asked, longest_block(bool((steps >= COARSE * rms).any())))
        owner = np.searchsorted(asked.offsets, units.offsets[:-1], side="right") - 1
        trial, small = _dithered(x, units, owner, steps[owner], key), asked.lengths[owner] < LEAST_BLOCK
        finer = _finer(x, asked, steps, float(trial.bits[~small].sum()))
        if finer == 1.0:
            return trial
        return _dithered(x, units, owner, as_sent(np.where(small, trial.steps / finer, trial.steps)), key)

    def with_forms(self, x: Vector, key: int) -> Trial:
        """The best form of each unit; the levels and steps of those on the lattice."""
        n, square = self.units.lengths, self.steps**2
        errors, forms = square * (self.spread - 3 * self.spread**2 / n), np.full(len(n), DITHERED)
        values, steps, hexagonal = self.values, self.steps, HEXAGON_ERROR * square * n
        may_win = (hexagonal < errors) & (self.bits > _LATTICE_BITS * n)
        if may_win.any():
            points, wider = to_lattice(x, self.units, key, self.steps)
            bits = _entropies(points, self.units)
            hexagonal *= 4.0 ** ((bits - self.bits) / n)  # a bit more per element is worth 6 dB
            better = may_win & (hexagonal < errors)
            forms[better], steps = LATTICE, np.where(better, wider, self.steps)
            errors = np.where(better, hexagonal, errors)
            values = np.where(np.repeat(better, n), points, self.values)
        energies = square_sums(x, self.units)
        for unit in np.flatnonzero((n >= LEAST_BLOCK) & (energies > _TINY)).tolist():
            k = finest_width(int(n[unit]), float(self.bits[unit]) - SIDE_BITS)
            if k and step_error(width(k)) * energies[unit] < errors[unit]:
                here = slice(self.units.offsets[unit], self.units.offsets[unit + 1])
                if becomes_gaussian(*_shares(x[here], float(energies[unit])), width(k)):
                    forms[unit] = -k
        return replace(self, steps=steps, values=values, forms=forms)

    def segment_starts(self) -> npt.NDArray[np.int64]:
        """The units with which segments begin: neighbours of one segment become one, unless they are rotated."""
        new = (np.diff(self.owner) != 0) | (np.diff(self.forms) != 0) | (self.forms[1:] < 0)
        return np.flatnonzero(np.append(True, new))


def _dithered(x: Vector, units: Segments, owner: npt.NDArray[np.int64], steps: Floats, key: int) -> Trial:
    (low, high), bounds, each = split_key(key), units.offsets, np.arange(units.count)
    values, spread = np.empty(len(x), dtype=np.int32), np.empty(units.count)
    inverse, top = inverses(steps.astype(np.float32), 1), float(FINEST)

    def work(first: int, last: int) -> None:
        round_pieces(x, bounds, each, inverse, top, low, high, values, spread, first, last)

    over_ranges(work, units.count, smallest=4)
    return Trial(units, owner, steps, values, spread, _entropies(values, units), np.zeros(units.count, dtype=np.int64))


def longest_block(coarse: bool) -> int:
    """Of rotated elements. coarse: whether a step is COARSE times the rms of its segment, or wider."""
    return MOST_BLOCK if coarse else LARGEST_BLOCK


def units_of(asked: Segments, longest: int) -> Segments:
    """The segments, cut into blocks of 256 elements or more; the rest of a segment is one unit.

    >>> units_of(Segments.of([1000, 3], 1003), 512).lengths.tolist()
    [512, 256, 232, 3]
    """
    cut = blocks(asked, longest).offsets
    lengths = np.diff(cut)
    keep = (lengths >= LEAST_BLOCK) | np.isin(cut[:-1], asked.offsets)
    keep[1:] |= lengths[:-1] >= LEAST_BLOCK  # the first of the rest
    return Segments(np.append(cut[:-1][keep], cut[-1]))


def _finer(x: Vector, asked: Segments, steps: Floats, others: float) -> float:
    """How many times as fine small segments can be quantized within their share; others: bits of the large ones."""
    small = np.flatnonzero((asked.lengths < LEAST_BLOCK) & (steps > 0)).tolist()
    if not small:
        return 1.0
    sizes = np.concatenate([np.abs(x[asked.offsets[j] : asked.offsets[j + 1]]) / steps[j] for j in small])
    finer = 1.0
    while finer < _MOST_FINER and 2 * finer * sizes.max() < FINEST:
        if np.sum(1 + np.log2(1 + 4 * finer * sizes)) > _SMALL_SHARE * others:
            break
        finer *= 2
    return finer


def finest_width(n: int, bits: float) -> int:
    """k of the finest rotated levels of n elements within these bits; 0 where there are none."""
    place = bisect_left(WIDTHS, -bits / n, key=lambda k: -step_rate(width(k)))
    return WIDTHS[place] if 0 < place < len(WIDTHS) else 0


def becomes_gaussian(squares: float, cubes: float, step: float) -> bool:
    """Whether a rotated block errs as the formulas say, and with next to no bias.

    squares, cubes: the sums of the squares and cubes of its elements' shares of its energy.
    """
    large = 1 / squares  # this many elements share the energy
    enough = large >= _LARGE and large * math.erfc(step / math.sqrt(8)) >= _FEWEST
    return enough and step_bias(step) ** 2 * cubes <= _BIAS * step_error(step)


def _shares(x: Vector, energy: float) -> tuple[float, float]:
    shares = np.square(x * np.float32(1 / math.sqrt(energy)))
    squares = np.square(shares)
    return float(squares.sum(dtype=np.float64)), float((squares * shares).sum(dtype=np.float64))


def _entropies(values: npt.NDArray[np.int32], units: Segments) -> Floats:
    """What an entropy coder takes for the levels of each unit, in bits."""
    return np.array([_entropy(part) for part in np.split(values, units.offsets[1:-1])])


def _entropy(values: npt.NDArray[np.int32]) -> float:
    counts = np.bincount(values - values.min()) if len(values) > 4096 else np.unique(values, return_counts=True)[1]
    counts = counts[counts > 0]
    return float(len(values) * np.log2(len(values)) - np.sum(counts * np.log2(counts)))
