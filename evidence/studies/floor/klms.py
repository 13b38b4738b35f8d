"""KLMS (Isik, Pase, Gunduz, Koyejo, Weissman, Zorzi, AISTATS 2024) with QSGD: minimal random coding of its levels.

A client's distribution q is QSGD's: each element goes to one of the two levels next to it, at random. The server's p is
the frequency of levels in each tensor over all clients in the round before. Both sides draw the same K candidates of a
block from p; the client picks one with a probability that is proportional to q / p, and sends its number. A block has
so many elements that the divergence of q from p is `_LOAD` bits on average, as their blocks of equal divergence have.
In the first round there is no p, so the levels themselves are sent as one of our frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.protocol.arrays import Vector
from evidence.studies.floor.loop import Exchanged, MakeRival, Shape

_BITS, _LOAD = 8, 6.0  # of a candidate's number, and of divergence per block: K = exp(divergence + some more)
_NEVER = -60.0  # in place of log 0
_HEAD = 64  # bits per tensor: its norm, and how long its blocks are

Floats = npt.NDArray[np.float64]


class KLMS:
    """One model's tensors, and how often each level was received in each of them."""

    kept, eta = 0.0, 1.0

    def __init__(self, s: int, shapes: tuple[Shape, ...]) -> None:
        self._s = s
        self._lengths = [math.prod(shape) for shape in shapes]
        self._places = list(pairwise(np.cumsum([0, *self._lengths]).tolist()))
        self._frequencies: list[Floats] = []

    def exchange(self, wanted: Mapping[int, Vector], weights: Mapping[int, float], seed: int, round: int) -> Exchanged:
        levels, values, bits = {}, {}, 0
        for client, update in wanted.items():
            key = aq.stream_key(seed, round, client)
            if self._frequencies:
                levels[client], values[client], size = self._coded(update, np.random.default_rng(key))
            else:
                made = aq.quantize(update, s=self._s, key=key, segments=np.array(self._lengths), quantizer="uniform")
                levels[client], values[client] = made.values.astype(np.int64), made.dequantize()
                size = 8 * len(aq.encode(made))
            bits += size
        self._frequencies = [
            _frequency(np.concatenate([one[first:last] for one in levels.values()]), self._s)
            for first, last in self._places
        ]
        return Exchanged(values, -(-bits // 8), -(-bits // 8))

    def _coded(self, update: Vector, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], Vector, int]:
        levels, values, bits = np.zeros(len(update), dtype=np.int64), np.zeros_like(update), 0
        for (first, last), p in zip(self._places, self._frequencies, strict=True):
            piece = update[first:last].astype(np.float64)
            norm = float(np.linalg.norm(piece))
            if norm:
                levels[first:last], blocks = coded(piece * self._s / norm, p, rng)
                values[first:last] = levels[first:last] * (norm / self._s)
                bits += _BITS * blocks
            bits += _HEAD
        return levels, values, bits


def coded(x: Floats, p: Floats, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], int]:
    """Return levels that are drawn nearly as QSGD draws them from x, and how many blocks they are sent in.

    p: the frequencies of the levels -s to s.

    >>> found, blocks = coded(np.array([0.0, 0.9, -0.1]), np.array([0.25, 0.5, 0.25]), np.random.default_rng(0))
    >>> found.tolist(), blocks
    ([0, 1, 0], 1)
    """
    s, sign, log_p = len(p) // 2, np.where(x < 0, -1, 1), np.log(p)
    low = np.minimum(np.floor(np.abs(x)), s - 1).astype(np.int64)
    up = np.abs(x) - low
    lower, upper = _log(1 - up) - log_p[s + sign * low], _log(up) - log_p[s + sign * (low + 1)]
    divergence = float(np.sum((1 - up) * lower + up * upper)) / math.log(2)
    length = int(min(max(_LOAD * len(x) / max(divergence, 1e-9), 1), len(x)))
    blocks, candidates = -(-len(x) // length), 2**_BITS
    zero = np.where(low == 0, lower, _NEVER)  # what log(q / p) is at level 0
    chances = np.delete(p, s)
    places = _drawn(candidates * len(x), float(chances.sum()), rng)
    candidate, element = np.divmod(places, len(x))
    level = rng.choice(np.delete(np.arange(-s, s + 1), s), size=len(places), p=chances / chances.sum())
    there = sign[element] * level - low[element]  # 0 and 1 are the two levels next to an element
    ratio = np.select([there == 0, there == 1], [lower[element], upper[element]], _NEVER)
    score = np.bincount(candidate * blocks + element // length, ratio - zero[element], candidates * blocks)
    score = score.reshape(candidates, blocks) + np.add.reduceat(zero, np.arange(0, len(x), length))
    chosen = np.argmax(score + rng.gumbel(size=score.shape), axis=0)
    levels = np.zeros(len(x), dtype=np.int64)
    taken = candidate == chosen[element // length]
    levels[element[taken]] = level[taken]
    return levels, blocks


def _log(x: npt.ArrayLike) -> Floats:
    return np.asarray(np.log(np.maximum(x, math.exp(_NEVER))), dtype=np.float64)


def _drawn(count: int, chance: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the places of those among `count` that come up with this chance each."""
    places = np.sort(rng.integers(count, size=rng.poisson(-count * math.log1p(-min(chance, 0.999)))))
    return places[np.diff(places, prepend=-1) > 0]


def _frequency(levels: npt.NDArray[np.int64], s: int) -> Floats:
    """Return how often each level was received; a level that never was counts as half of one."""
    counts = np.bincount(levels + s, minlength=2 * s + 1) + 0.5
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def klms(s: int) -> MakeRival:
    """The method for a model of any shapes."""
    return lambda shapes: KLMS(s, shapes)
