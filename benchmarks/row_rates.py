"""What rates that follow the variance of rows and columns would save, on updates of the CNN: a trial, not a quantizer.

The rows (or columns, or both) of a weight matrix are divided by the square root of their rms before `mixed` quantizes
the update, and multiplied by it afterwards. Noise is then proportional to the rms, which is best at low rates. The rms
is sent in quarters of an octave, deflated, and counted. Errors are squared, as a share of the update's energy.

    python benchmarks/row_rates.py [--out results/benchmarks/row_rates.json]
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.quantizers.registry import find
from common import cnn_updates, options, record

ROUNDS = (0, 20)
BITS = (0.02, 0.1, 0.5, 2.0)
TRIES = 14
LEAST = 5_000  # elements of a matrix whose rows are looked at
OUTPUTS = {51_200: 64, 1_605_632: 512, 5_120: 10}  # rows of the CNN's matrices, by their elements
AXES = {"none": (), "rows": (1,), "columns": (0,), "both": (1, 0)}


def weights(update: np.ndarray, tensors: tuple[int, ...], axes: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """The square root of the rms of each element's row and column, rounded, and the bytes that say it."""
    factors, side, start = np.ones(len(update)), 0, 0
    for size in tensors:
        if size >= LEAST and axes:
            matrix = update[start : start + size].reshape(OUTPUTS[size], -1).astype(np.float64)
            for axis in axes:
                rms = np.sqrt(np.mean(matrix**2, axis=axis, keepdims=True))
                quarters = np.clip(np.rint(4 * np.log2(np.maximum(rms / rms.max(), 1e-9))), -40, 0)
                side += len(zlib.compress(np.diff(quarters.ravel(), prepend=0).astype(np.int8).tobytes(), 9))
                matrix = matrix / 2.0 ** (quarters / 4)
                factors[start : start + size] *= np.broadcast_to(2.0 ** (quarters / 8), matrix.shape).ravel()
        start += size
    return factors.astype(np.float32), side


def measured(update: np.ndarray, tensors: tuple[int, ...], axes: tuple[int, ...], bits: float) -> dict[str, Any]:
    """The finest levels whose frame and factors have at most this many bits per element."""
    factors, side = weights(update, tensors, axes)
    kind, segments, scaled = find("mixed"), np.array(tensors), update / factors
    low, high = 1e-2, 1e4

    def levels(s: float) -> aq.Levels:
        whole, stretch = kind.levels_for(s, segments)
        return aq.quantize(scaled, whole, 3, segments, stretch, kind)

    def size(s: float) -> int:
        return len(aq.encode(levels(s))) + side

    for _ in range(TRIES):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if 8 * size(middle) > bits * len(update) else (middle, high)
    back = levels(low).dequantize().astype(np.float64) * factors
    error = float(np.sum((back - update) ** 2) / np.sum(update.astype(np.float64) ** 2))
    return {"side_bytes": side, "bits": 8 * size(low) / len(update), "error": error}


if __name__ == "__main__":
    arguments = options(__doc__ or "")
    rows = []
    for done, update, tensors in cnn_updates(ROUNDS):
        for bits in BITS:
            for name, axes in AXES.items():
                found = measured(update, tensors, axes, bits)
                rows.append({"rounds": done, "wanted": bits, "scaled": name, **found})
                print(rows[-1], flush=True)
    record(arguments.out, {"rows": rows}, quiet=True)
