"""What must hold for every frame, whoever made it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs.frame import read_frame
from adaquantfl.codecs.inspection import describe
from adaquantfl.codecs.registry import by_tag
from adaquantfl.quantizers.base import LARGEST_FLOAT
from support import reference_decoder as reference
from support.as_read import as_read

ROUNDING = 1e-5  # of float32 sums, as a share of the bound
SMALL = 64  # elements: what the reference decoder, which is slow, is given
MOST = 2**20  # elements that a receiver without a dimension decodes
# Shares of the mutants that the slow oracles see; the record counts them. All others hold for every mutant.
COMPARED = 0.25  # of the accepted: decoded apart from the sum, and compared with it
WRITTEN_AGAIN, DESCRIBED = 0.02, 0.005  # of the compared
REFUSED_ELSEWHERE = 0.05  # of the refused: `decode` must refuse them too
REFERENCE = 0.01  # of the small: read by the reference decoder
WEIGHTS = (1.0, 0.25, 1 / 3, -1.0, 0.0, 1e-30, 3e38)


class Finding(AssertionError):
    """An oracle does not hold."""


@dataclass
class _Sum:
    """An accumulator that has a sum already."""

    total: aq.Accumulator
    sum: Any
    data: bytes

    def restore(self) -> None:
        """As it was: faster than a new one."""
        total = self.total
        total._total[:], total.frames, total._bound = self.sum, 1, 1.0


class FrameOracle:
    """Reads mutants as servers and tools do. `run` returns the reason of the refusal; None where it was accepted.

    compared: the share of the accepted that are decoded apart from the sum. checks: how many mutants each of the slow
    oracles has seen.
    """

    def __init__(self, chance: Random, compared: float = COMPARED) -> None:
        self.chance, self.compared = chance, compared
        self.checks: Counter[str] = Counter()
        self._sums: dict[int, _Sum] = {}

    def run(self, data: bytes, dimension: int) -> str | None:
        chance = self.chance
        kept = self._sums.get(dimension) or self._begun(dimension)
        weight = 1.0 if chance.random() < 0.7 else chance.choice(WEIGHTS)
        try:
            kept.total.add(data, weight)
        except aq.FrameError as error:
            reason = str(error)
            self._unchanged(kept)
            if chance.random() < REFUSED_ELSEWHERE and "beyond float32" not in reason:
                self._refused_elsewhere(data, dimension, reason)
        else:
            reason = None
            found = kept.total.result()
            if not np.abs(found).max() <= kept.total._bound * (1 + ROUNDING):  # nor where it is NaN
                raise Finding(f"the sum is not finite, or above its bound {kept.total._bound:g}")
            if chance.random() < self.compared:
                self._compare(data, dimension, weight, kept, found)
            kept.restore()
        if dimension <= SMALL and chance.random() < REFERENCE:
            self._agrees_with_the_reference(data, dimension)
        return reason

    def _begun(self, dimension: int) -> _Sum:
        total = aq.Accumulator(dimension)
        total.add(aq.encode_float32(np.linspace(-1, 1, dimension, dtype=np.float32)))
        values = total.result()
        self._sums[dimension] = _Sum(total, values, values.tobytes())
        return self._sums[dimension]

    def _unchanged(self, kept: _Sum) -> None:
        if kept.total.frames != 1 or kept.total.result().tobytes() != kept.data:
            raise Finding("a refused frame changed the sum")

    def _refused_elsewhere(self, data: bytes, dimension: int, reason: str) -> None:
        self.checks["refused by decode too"] += 1
        for read in (lambda: aq.decode(data, dimension), lambda: aq.decode_float32(data, dimension)):
            try:
                read()
            except aq.FrameError:
                continue
            raise Finding(f"the sum refuses what decode reads: {reason}")
        try:
            aq.decode(data, most=MOST)
        except aq.FrameError:
            return
        if "expected" not in reason:
            raise Finding(f"without a dimension decode reads what the sum refuses: {reason}")

    def _compare(self, data: bytes, dimension: int, weight: float, kept: _Sum, found: Any) -> None:
        """The sum is what it was plus the weight times what `decode` reads, which is within its own bound."""
        self.checks["decoded and compared with the sum"] += 1
        frame = read_frame(data, dimension)
        if frame.header.quantizer == 255:
            values = aq.decode_float32(data, dimension)
            bound = float(np.abs(values).max())
        else:
            levels = aq.decode(data, dimension)
            values, bound = levels.dequantize(), levels.bound
            if self.chance.random() < WRITTEN_AGAIN:
                self.checks["written and read again"] += 1
                if aq.decode(by_tag(frame).encode(levels), dimension) != levels:
                    raise Finding("what was read differs when it is written and read again")
        if not np.isfinite(values).all():
            raise Finding("a decoded value is not finite")
        if not bound <= LARGEST_FLOAT * 2 or np.abs(values).max() > bound * (1 + ROUNDING) + 1e-44:
            raise Finding(f"a decoded value is {np.abs(values).max():g}, above the bound {bound:g}")
        expected = kept.sum.astype(np.float64) + float(np.float32(weight)) * values.astype(np.float64)
        if np.abs(found - expected).max() > ROUNDING * (1 + abs(weight) * bound):
            raise Finding("the sum is not the decoded values times the weight")
        if self.chance.random() < DESCRIBED:
            self.checks["described"] += 1
            describe(data)

    def _agrees_with_the_reference(self, data: bytes, dimension: int) -> None:
        """A decoder written from docs/wire-format.md alone reads the same and refuses the same."""
        self.checks["read by the reference decoder"] += 1
        theirs: Any
        ours: Any
        is_float32 = len(data) > 5 and data[5] == 255
        try:
            theirs = (reference.decode_float32 if is_float32 else reference.decode)(data, dimension)
        except ValueError as error:
            theirs = f"refused: {error}"
        try:
            ours = aq.decode_float32(data, dimension).tolist() if is_float32 else as_read(aq.decode(data, dimension))
        except aq.FrameError as error:
            if not isinstance(theirs, str):
                raise Finding(f"only the library refuses: {error}") from None
            return
        if ours != theirs:
            raise Finding(f"the reference decoder reads something else: {str(theirs)[:200]}")
