"""How a worker's outer gradient is sent in `studies.diloco`: plain, quantized, sparse, and ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import adaquantfl as aq
from adaquantfl.codecs.coding import encode, quantize_within
from adaquantfl.codecs.raw import encode_float32
from adaquantfl.protocol.step import ServerStep
from adaquantfl.quantizers.base import Count
from adaquantfl.quantizers.choice import LEAST_LEVELS
from adaquantfl.quantizers.levels import quantize
from adaquantfl.quantizers.registry import find
from adaquantfl.theory import MAX_LEVELS

Vector = npt.NDArray[np.float32]
DILOCO = aq.Nesterov(eta=0.7, beta=0.9)  # Douillard et al. 2023
BITS = 0.14  # per element, of ours
WORKERS = 8
KEPT, LARGE_STEPS = (
    0.8,
    aq.Momentum(eta=20.0, beta=0.0),
)  # found in trials: better for SparseLoCo in few rounds
CHUNK, TOP = 4096, 64  # of SparseLoCo
QUANTIZER = find("centroid")
CLOSE = 0.97  # of the budget: near enough
TRIALS = 16
PROPORTIONAL = 4  # trials in which bytes are taken to grow as s does; then the range of s is halved
BITS_PER_NONZERO = 8.0  # about what a frame takes for a level that is not 0; the first guess


@dataclass(frozen=True)
class Sent:
    """values: what the others receive. size: bytes of the frame. plain: bytes without an entropy code, as published."""

    values: Vector
    size: int
    plain: int


Sender = Callable[[Vector, Sequence[int], int], Sent]


@dataclass(frozen=True)
class Method:
    """send: a vector, the lengths of its tensors and a key to what is sent. kept: how much of what was left out is
    added to the next vector; 0 is no error feedback. muon: the inner optimizer is Muon, not AdamW."""

    title: str
    send: Sender
    kept: float = 0.0
    step: ServerStep = DILOCO
    muon: bool = False


def float32(vector: Vector, lengths: Sequence[int], key: int) -> Sent:
    size = len(encode_float32(vector))
    return Sent(vector, size, size)


def rounded(s: int) -> Sender:
    """Integers -s to s of each tensor's largest magnitude."""

    def send(vector: Vector, lengths: Sequence[int], key: int) -> Sent:
        levels = aq.quantize(vector, s=s, key=0, segments=np.array(lengths), quantizer="nearest")
        return Sent(levels.dequantize(), len(aq.encode(levels)), len(aq.encode(levels, codec="fixed")))

    return send


def sparse(vector: Vector, lengths: Sequence[int], key: int = 0) -> Sent:
    """SparseLoCo (Sarfi et al. 2025): the 64 largest of each 4,096 elements of a tensor, in 2 bits.

    Plain, an element takes 12 bits for its place and 2 for its value, and each tensor has a table of four values.
    On this wire, the four values are levels -2, -1, 1 and 2; the tables are counted.
    """
    values, levels = np.zeros_like(vector), np.zeros(len(vector), dtype=np.int8)
    for first, last in pairwise(np.cumsum([0, *lengths]).tolist()):
        chunks = np.append(vector[first:last], np.zeros(-(last - first) % CHUNK, dtype=np.float32)).reshape(-1, CHUNK)
        top = np.argpartition(-np.abs(chunks), TOP - 1, axis=1)[:, :TOP]
        codes, table = two_bits(np.take_along_axis(chunks, top, axis=1))
        for out, meaning in ((values, table), (levels, np.array([-2, -1, 1, 2]))):
            spread = np.zeros(chunks.shape, dtype=out.dtype)
            np.put_along_axis(spread, top, meaning[codes].astype(out.dtype), axis=1)
            out[first:last] = spread.ravel()[: last - first]
    tables = 16 * len(lengths)
    frame = aq.encode(aq.Levels(levels, np.float32(1), 2, None, "nearest", "linf"))
    return Sent(values, len(frame) + tables, math.ceil(np.count_nonzero(levels) * 14 / 8) + tables)


def ours(noise: float = 1.0, bits: float | None = None) -> Sender:
    """What `adaquantfl.torch.OuterStep` sends with this noise; or the same quantizer, held to a budget of bits."""

    def send(vector: Vector, lengths: Sequence[int], key: int) -> Sent:
        if bits is None:
            frame = encode(quantize_within(vector, noise * WORKERS, key, lengths, QUANTIZER))
        else:
            frame = within_bits(vector, lengths, bits, key)
        return Sent(aq.decode(frame).dequantize(), len(frame), len(frame))

    return send


def within_bits(vector: Vector, lengths: Sequence[int], bits: float, key: int) -> bytes:
    """The finest frame of at most `bits` bits per element."""
    segments, budget = np.asarray(lengths, dtype=np.int64), bits * len(vector) / 8
    fits, too_fine = LEAST_LEVELS, float(MAX_LEVELS)
    s = 8 * budget / BITS_PER_NONZERO / float(np.sqrt(2 / np.pi * segments).sum())
    best: bytes | None = None
    for trial in range(TRIALS):
        s = min(max(s, LEAST_LEVELS), float(MAX_LEVELS))
        frame = _frame(vector, segments, s, key)
        used = len(frame) / budget
        if used <= 1:
            best, fits = frame, s
            if used >= CLOSE or s == MAX_LEVELS:
                break
        else:
            too_fine = s
        s *= math.sqrt(CLOSE) / used  # while few levels are not 0, bytes grow about as s does
        if not fits < s < too_fine or (best is None and trial >= PROPORTIONAL):
            s = math.sqrt(fits * too_fine)
    assert best is not None, "headers alone take more"
    return best


def _frame(vector: Vector, segments: np.ndarray, s: float, key: int) -> bytes:
    whole, stretch = QUANTIZER.levels_for(Count(s), segments, vector, balanced=True)
    return encode(quantize(vector, whole, key, segments, stretch, QUANTIZER))


def two_bits(values: Vector) -> tuple[npt.NDArray[np.int64], Vector]:
    """Codes 0 to 3, and the value of each: four steps over six standard deviations, each at its elements' mean."""
    centred = values - values.mean()
    step = 6 / 4 * math.sqrt(float(np.sum(np.square(centred, dtype=np.float64))) / max(values.size - 1, 1))
    codes = np.clip(np.rint(centred / (step or 1.0) + 2), 0, 3).astype(np.int64)
    counts = np.bincount(codes.ravel(), minlength=4)
    sums = np.bincount(codes.ravel(), values.ravel().astype(np.float64), minlength=4)
    return codes, (sums / np.maximum(counts, 1)).astype(np.float32)


METHODS = {
    "float32": Method("float32 (DiLoCo)", float32),
    "int8": Method("int8", rounded(127)),
    "int4": Method("4 bits", rounded(7)),
    "sparseloco": Method("SparseLoCo", sparse, kept=0.95, step=aq.Momentum(eta=1.0, beta=0.0)),
    "sparseloco-large-steps": Method("SparseLoCo, larger outer steps", sparse, kept=KEPT, step=LARGE_STEPS),
    "outer-step": Method("ours, `OuterStep` with its defaults", ours()),
    "ours": Method(f"ours, held to {BITS} bits", ours(bits=BITS)),
    "float32-muon": Method("float32, inner Muon", float32, muon=True),
    "ours-muon": Method(f"ours, held to {BITS} bits, inner Muon", ours(bits=BITS), muon=True),
}
