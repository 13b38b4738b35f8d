"""Rivals as their papers have them: what each client sends, what the server gets of it, and the bytes.

`kept` is how much of what was left out is added to the next update (error feedback), `eta` the server's step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.protocol.arrays import Vector
from evidence.studies import senders
from evidence.studies.floor.loop import Exchanged, Shape

WIDTHS = (0, 2, 4, 8)  # bits that FedFQ gives to an element


Send = Callable[[Vector, Sequence[int], int], tuple[Vector, int]]  # vector, lengths, key -> values, bytes


@dataclass(frozen=True)
class Frames:
    """Each client sends a frame by itself; who follows the model gets the round's frames."""

    send: Send
    lengths: tuple[int, ...]
    kept: float = 0.0
    eta: float = 1.0

    def exchange(self, wanted: Mapping[int, Vector], weights: Mapping[int, float], seed: int, round: int) -> Exchanged:
        values, total = {}, 0
        for client, vector in wanted.items():
            values[client], size = self.send(vector, self.lengths, aq.stream_key(seed, round, client))
            total += size
        return Exchanged(values, total, total)


def frames(send: Send, kept: float = 0.0, eta: float = 1.0) -> Callable[[tuple[Shape, ...]], Frames]:
    """A method whose clients send frames, for a model of any shapes."""
    return lambda shapes: Frames(send, tuple(math.prod(shape) for shape in shapes), kept, eta)


def float32(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
    """Federated averaging (McMahan et al. 2017)."""
    return vector, 4 * len(vector)


def int8(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
    """Integers -127 to 127 of each tensor's largest magnitude, rounded to the nearest."""
    levels = aq.quantize(vector, s=127, key=key, segments=np.array(lengths), quantizer="nearest")
    return levels.dequantize(), len(vector) + 4 * len(lengths)


def fedpaq(s: int) -> Send:
    """FedPAQ (Reisizadeh et al. 2020): QSGD's s levels and a sign in a fixed number of bits, a norm for each tensor."""
    bits = 1 + math.ceil(math.log2(s + 1))

    def send(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
        levels = aq.quantize(vector, s=s, key=key, segments=np.array(lengths), quantizer="uniform")
        return levels.dequantize(), math.ceil(bits * len(vector) / 8) + 4 * len(lengths)

    return send


def eden(bits: int) -> Send:
    """EDEN (Vargaftik et al. 2022) with whole bits, without an entropy coder; a scale for each rotated block."""

    def send(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
        levels = aq.quantize(vector, s=2 ** (bits - 1), key=key, segments=np.array(lengths), quantizer="eden")
        return levels.dequantize(), math.ceil(bits * len(vector) / 8) + 4 * np.size(levels.scale)

    return send


def top_k(share: float) -> Send:
    """The largest elements of the whole update as float32 (Stich et al. 2018, Aji and Heafield 2017).

    Places are counted at log2 of the number of ways to choose them: no code takes fewer bits on average.
    """

    def send(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
        count = max(1, round(share * len(vector)))
        chosen = np.argpartition(-np.abs(vector), count - 1)[:count]
        values = np.zeros_like(vector)
        values[chosen] = vector[chosen]
        return values, math.ceil((32 * count + log2_choices(len(vector), [count])) / 8)

    return send


def sparseloco(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
    """SparseLoCo (Sarfi et al. 2025): the 64 largest of each 4,096 elements in 2 bits; see `studies.senders`."""
    sent = senders.sparse(vector, lengths)
    return sent.values, min(sent.size, sent.plain)


def fedfq(bits: float) -> Send:
    """FedFQ (Li et al. 2024): each element of a tensor has 0, 2, 4 or 8 bits, as many as keep the error small.

    Their annealing looks for the least sum of x^2 / 4^bits within a budget; here is the least itself. Elements of one
    width are rounded at random in steps of their largest magnitude, sign included in the bits. The widths are counted
    at log2 of the number of ways to choose them, which the authors leave out.
    """

    def send(vector: Vector, lengths: Sequence[int], key: int) -> tuple[Vector, int]:
        values, size, rng = np.zeros_like(vector), 0.0, np.random.default_rng(key)
        for first, last in pairwise(np.cumsum([0, *lengths]).tolist()):
            piece = vector[first:last]
            given = widths(np.abs(piece), bits * len(piece))
            for width in WIDTHS[1:]:
                here = given == width
                values[first:last][here] = _rounded(piece[here], 2 ** (width - 1) - 1, rng)
            counts = [int(np.count_nonzero(given == width)) for width in WIDTHS[1:]]
            size += float(given.sum()) + 32 * np.count_nonzero(counts) + log2_choices(len(piece), counts)
        return values, math.ceil(size / 8)

    return send


def widths(sizes: Vector, budget: float) -> npt.NDArray[np.int64]:
    """The bits of each element with the least sum of x^2 / 4^bits and at most this many bits in all.

    What a further width saves per bit falls with every width, so that taking the largest savings first is optimal.

    >>> widths(np.float32([8, 1, 4, 0.1]), 6.0).tolist()
    [4, 0, 2, 0]
    """
    steps = list(pairwise(WIDTHS))
    saved = np.stack([sizes.astype(np.float64) ** 2 * (4.0**-a - 4.0**-b) / (b - a) for a, b in steps])
    cost = np.repeat([b - a for a, b in steps], len(sizes))
    order = np.argsort(-saved, axis=None, kind="stable")
    taken = order[np.cumsum(cost[order]) <= budget]
    return np.bincount(taken % len(sizes), cost[taken], minlength=len(sizes)).astype(np.int64)


def log2_choices(items: int, counts: Sequence[int]) -> float:
    """log2 of the number of ways to give so many of the items to each kind, and the rest to none.

    >>> round(2 ** log2_choices(5, [2]))
    10
    """
    rest = items - sum(counts)
    return (math.lgamma(items + 1) - sum(math.lgamma(count + 1) for count in (*counts, rest))) / math.log(2)


def _rounded(x: Vector, s: int, rng: np.random.Generator) -> Vector:
    """s equal steps of the largest magnitude, at random and unbiased."""
    largest = float(np.abs(x).max(initial=0.0))
    if not largest:
        return x
    scaled = x / np.float32(largest) * s
    return np.asarray(np.floor(scaled + rng.random(len(x))) * (largest / s), dtype=np.float32)
