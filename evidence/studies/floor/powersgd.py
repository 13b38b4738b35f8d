"""PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019): each matrix as two thin factors, both averaged by the server.

Clients send P_i = M_i Q and get the mean P, orthogonalise it, send Q_i = M_i^T P and get the mean Q, which is the next
round's start. Vectors such as biases go as float32. The error that a client keeps is M_i - P Q_i^T: summed over the
clients it is that of the paper's algorithm, also where only some of them take part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from adaquantfl.protocol.arrays import Vector
from evidence.studies.floor.loop import Exchanged, Shape

Matrix = npt.NDArray[np.float64]


class PowerSGD:
    """One model's factors. The bytes of both means are counted down, within the round, for each of its clients."""

    kept, eta = 1.0, 1.0

    def __init__(self, rank: int, shapes: tuple[Shape, ...], seed: int = 0) -> None:
        self._rank = rank
        ends = np.cumsum([0, *(math.prod(shape) for shape in shapes)]).tolist()
        self._places = [(*place, shape) for place, shape in zip(pairwise(ends), shapes, strict=True)]
        rng = np.random.default_rng(seed)
        self._start = {
            first: rng.standard_normal((math.prod(shape[1:]), self._thin(shape)))
            for first, _, shape in self._places
            if self._is_matrix(shape)
        }

    def exchange(self, wanted: Mapping[int, Vector], weights: Mapping[int, float], seed: int, round: int) -> Exchanged:
        values = {client: vector.copy() for client, vector in wanted.items()}
        size = 0
        for first, last, shape in self._places:
            if first not in self._start:
                size += 4 * (last - first)
                continue
            rows = {c: vector[first:last].reshape(shape[0], -1).astype(np.float64) for c, vector in wanted.items()}
            p = sum(weights[client] * (_float32(m @ self._start[first])) for client, m in rows.items())
            p = np.linalg.qr(_float32(p))[0]
            factors = {client: _float32(m.T @ p) for client, m in rows.items()}
            for client, q in factors.items():
                values[client][first:last] = (p @ q.T).ravel()
            self._start[first] = _float32(sum(weights[client] * q for client, q in factors.items()))
            size += 4 * self._thin(shape) * (shape[0] + math.prod(shape[1:]))
        return Exchanged(values, size * len(wanted), size, at_once=True)

    def _thin(self, shape: Shape) -> int:
        return min(self._rank, shape[0], math.prod(shape[1:]))

    def _is_matrix(self, shape: Shape) -> bool:
        return len(shape) > 1 and self._thin(shape) * (shape[0] + math.prod(shape[1:])) < math.prod(shape)


def powersgd(rank: int) -> Callable[[tuple[Shape, ...]], PowerSGD]:
    """The method for a model of any shapes."""
    return lambda shapes: PowerSGD(rank, shapes)


def _float32(x: Matrix | float) -> Matrix:
    """As it arrives: factors travel as float32."""
    return np.asarray(x, dtype=np.float32).astype(np.float64)
