"""An update as whole numbers whose sum is known modulo 2^bits: the uplink of a private round.

All clients rotate their updates by the round's key (`quantizers.rotation`) and keep the same share of the coordinates,
which is a random projection. What is kept is rounded, without bias, to multiples of a step that was agreed before the
round. The sum of the whole numbers, times the step and the inverse of the share, is an unbiased estimate of the sum of
the updates: "The Fundamental Price of Secure Aggregation" (Chen, Choquette-Choo, Kairouz, Suresh, ICML 2022).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FrameError
from ..protocol.arrays import Vector
from ..quantizers.rotation import blocks, rotate, rotate_back
from ..quantizers.segments import Segments
from ..quantizers.streams import uniforms
from .masks import Whole

_PLAN = struct.Struct("<IIIIIBdQdddI")
OWN = struct.Struct("<QI")  # what a client alone is told: the key of its rounding, and its number
MOST_BITS = 32
_FACTS = np.array([  # the step, and the most, of the facts that are summed as multiples of a step
    (2.0**-24, 2.0**20),  # the loss
    (1.0, 2.0**40),  # clipped coordinates
    (2.0**-32, 2.0**16),  # mean squares, in units of the scale
    (2.0**-24, 2.0**30),  # statistics that are averaged as they are
])  # fmt: skip


@dataclass(frozen=True)
class RoundPlan:
    """What all clients of a round are told; it is the same for all, except for the key of the rounding.

    Attributes:
        round: from 0.
        clients: who are asked.
        least: of them that a sum needs.
        stride: one coordinate in this many is kept.
        residue: which one.
        bits: of a number.
        eta: the learning rate.
        rotation: the key of the rotation.
        longest: the largest l2 norm of the whole numbers, with noise; 0 without.
        variance: of the noise that a client adds to each number.
        clip: the largest l2 norm of what is kept, with noise; 0 without.
        steps: of the whole numbers, a tensor each; one for all with noise.
        levels: the largest number that a client may send, a tensor each; none with noise.
    """

    round: int
    clients: int
    least: int
    stride: int = 1
    residue: int = 0
    bits: int = 1
    eta: float = 1.0
    rotation: int = 0
    longest: float = 0.0
    variance: float = 0.0
    clip: float = 0.0
    levels: int = 1
    steps: tuple[float, ...] = ()

    @property
    def noisy(self) -> bool:
        """Whether the round is differentially private: clients then tell nothing but their numbers."""
        return self.clip > 0

    def pack(self) -> bytes:
        """As bytes."""
        head = _PLAN.pack(
            self.round, self.clients, self.least, self.stride, self.residue, self.bits, self.eta, self.rotation,
            self.longest, self.variance, self.clip, self.levels,
        )  # fmt: skip
        return head + np.array(self.steps, dtype="<f4").tobytes()

    @staticmethod
    def unpack(data: bytes, tensors: int) -> RoundPlan:
        """From bytes, for a model of this many tensors; FrameError where nobody could work with it."""
        start = _PLAN.size
        if len(data) < start or (len(data) - start) % 4:
            raise FrameError("The plan of the private round has a wrong size.")
        steps = np.frombuffer(data, "<f4", offset=start)
        plan = replace(RoundPlan(*_PLAN.unpack_from(data)), steps=tuple(map(float, steps)))
        floats = np.array([plan.eta, plan.longest, plan.variance, plan.clip, *plan.steps])
        if not (np.isfinite(floats).all() and (floats >= 0).all() and (steps > 0).all() and plan.eta > 0):
            raise FrameError("The plan of the private round has a number that is not finite, or too small.")
        if not (1 <= plan.bits <= MOST_BITS and plan.residue < plan.stride and 1 <= plan.least <= plan.clients):
            raise FrameError("The plan of the private round has bits, a stride or clients that cannot be.")
        if len(steps) != (1 if plan.noisy else tensors):
            raise FrameError(f"The plan of the private round has {len(steps)} steps for {tensors} tensors.")
        return plan


class Projection:
    """Which coordinates a round keeps. lengths: of the tensors; with noise all are rotated as one."""

    def __init__(self, plan: RoundPlan, lengths: Sequence[int]) -> None:
        self.dimension = sum(lengths)
        tensors = np.array([self.dimension] if plan.noisy else lengths, dtype=np.int64)
        self._blocks = blocks(Segments.of(tensors, self.dimension))
        self._kept, self._plan = slice(plan.residue, None, plan.stride), plan
        edges = np.concatenate([[0], np.cumsum(tensors)]) - plan.residue
        self.counts = np.diff(np.maximum(0, -(-edges // plan.stride)))  # kept of each tensor

    @property
    def count(self) -> int:
        """How many coordinates are kept."""
        return int(self.counts.sum())

    @property
    def steps(self) -> Vector:
        """The step of each kept coordinate."""
        return np.repeat(np.array(self._plan.steps, dtype=np.float32), self.counts)

    def of(self, update: Vector) -> Vector:
        """The kept coordinates of an update."""
        return rotate(update, self._blocks.offsets, self._plan.rotation)[self._kept]

    def back(self, kept: npt.NDArray[Any]) -> Vector:
        """An unbiased estimate of the update whose kept coordinates these are."""
        full = np.zeros(self.dimension, dtype=np.float32)
        full[self._kept] = kept * self._plan.stride
        return rotate_back(full, self._blocks.offsets, self._plan.rotation)


def rounded(kept: Vector, plan: RoundPlan, steps: Vector, key: int) -> tuple[npt.NDArray[np.int64], int]:
    """Kept coordinates as whole numbers, and how many had to be clipped. key: of the rounding."""
    draws = uniforms(key, len(kept))
    wanted = kept.astype(np.float64) / steps
    if not plan.noisy:
        inside = np.clip(wanted, -plan.levels, plan.levels)
        return np.floor(inside + draws).astype(np.int64), int(np.count_nonzero(inside != wanted))
    norm = float(np.sqrt(np.square(kept, dtype=np.float64).sum()))
    wanted *= min(1.0, plan.clip / norm) if norm else 1.0
    while True:  # what noise protects has to be bounded without exception
        found = np.floor(wanted + draws).astype(np.int64)
        if float(np.square(found.astype(np.float64)).sum()) <= plan.longest**2:
            return found, int(norm > plan.clip)
        wanted *= 0.98


def mean_squares(vector: Vector, lengths: Sequence[int]) -> npt.NDArray[np.float64]:
    """The mean square of each tensor's elements."""
    edges = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    found: npt.NDArray[np.float64] = np.add.reduceat(np.square(vector, dtype=np.float64), edges) / np.array(lengths)
    return found


def facts_of(loss: float, clipped: int, squares: npt.NDArray[np.float64], buffers: Vector) -> Whole:
    """What a client tells besides its update, as multiples of the facts' steps modulo 2^64."""
    values = np.concatenate([[loss, clipped], squares, buffers])
    steps, most = np.repeat(_FACTS, [1, 1, len(squares), len(buffers)], axis=0).T
    told: Whole = np.rint(np.clip(values, -most, most) / steps).astype(np.int64).view("<u8")
    return told


def summed_facts(total: Whole, tensors: int) -> tuple[float, int, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The sums of the losses, clipped coordinates, mean squares and statistics."""
    values = total.view("<i8") * np.repeat(_FACTS[:, 0], [1, 1, tensors, len(total) - 2 - tensors])
    return float(values[0]), int(values[1]), values[2 : 2 + tensors], values[2 + tensors :]
