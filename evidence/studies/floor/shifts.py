"""Methods that send the difference to a shift of each client: EF21 and DIANA. Both need every client in every round.

Server and client keep the same shift of each client. The server needs their weighted sum only, and so do clients who
follow the model from the round's frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.arrays import Vector
from evidence.studies.floor.loop import Exchanged, MakeRival, Shape
from evidence.studies.floor.rivals import Send, top_k


@dataclass(frozen=True)
class Shifted:
    """Clients send what they compress of u_i - h_i.

    Attributes:
        learned: the share of what arrived that is added to the shift h_i: 1 for EF21, alpha for DIANA.
    """

    send: Send
    lengths: tuple[int, ...]
    learned: float
    shifts: dict[int, Vector] = field(default_factory=dict)
    kept: float = 0.0
    eta: float = 1.0

    def exchange(self, wanted: Mapping[int, Vector], weights: Mapping[int, float], seed: int, round: int) -> Exchanged:
        values, total = {}, 0
        for client, update in wanted.items():
            shift = self.shifts.get(client, np.zeros_like(update))
            sent, size = self.send(update - shift, self.lengths, aq.stream_key(seed, round, client))
            values[client], total = shift + sent, total + size
            self.shifts[client] = shift + np.float32(self.learned) * sent
        return Exchanged(values, total, total)


def _lengths(shapes: tuple[Shape, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape) for shape in shapes)


def ef21(share: float) -> MakeRival:
    """EF21 (Richtárik, Sokolov, Fatkhullin, NeurIPS 2021) with the largest elements: h_i is all that arrived so far."""
    return lambda shapes: Shifted(top_k(share), _lengths(shapes), learned=1.0)


def diana(s: int) -> MakeRival:
    """DIANA (Mishchenko et al. 2019) with QSGD's s levels, a norm for each tensor; bytes are those of our frames.

    alpha = 1 / (1 + omega), where omega bounds the relative variance of the tensor with the largest one.
    """

    def send(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
        levels = aq.quantize(vector, s=s, key=key, segments=np.array(lengths), quantizer="uniform")
        return levels.dequantize(), len(aq.encode(levels))

    def make(shapes: tuple[Shape, ...]) -> Shifted:
        omega = max(aq.theory.variance_bound(length, s) for length in _lengths(shapes))
        return Shifted(send, _lengths(shapes), learned=1 / (1 + omega))

    return make
