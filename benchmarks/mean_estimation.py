"""The error of every quantizer at equal bytes: ||Q(x) - x||^2 / ||x||^2 at 0.5 to 4 measured bits per element.

Bits are those of whole frames, header and checksum included, written by `auto`. The number of levels is searched for so
that a frame has the bits asked for. EDEN has whole bits only: it is measured where it comes out, and ours once more at
exactly those bytes. Synthetic vectors have one scale, the CNN's updates one for each tensor.

    python benchmarks/mean_estimation.py [--out evidence/records/benchmarks/mean_estimation.json] [--only centroid]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.quantizers.base import norms_of, whole_levels
from adaquantfl.quantizers.registry import find, names
from common import cnn_updates, options, record

D = 2**20
BITS = (0.5, 1.0, 2.0, 3.0, 4.0)
EDEN = (1, 2, 4, 8)  # s at 1 to 4 bits
OURS = ("centroid",)  # measured at EDEN's bytes too
DRAWS = 3
ROUNDS = (0, 20)
CLOSE = 0.002  # of the bits that are asked for
NEAR = 0.03
TRIES = 24
SEARCHED = [(name, norm) for name in names() if name != "eden" for norm in norms_of(find(name)) or (None,)]


@dataclass(frozen=True)
class Vector:
    kind: str
    x: np.ndarray
    segments: np.ndarray | None = None


def vectors() -> Iterator[Vector]:
    rng = np.random.default_rng(0)
    yield Vector("Gaussian", rng.standard_normal(D).astype(np.float32))
    yield Vector("Laplace", rng.laplace(size=D).astype(np.float32))
    yield Vector("log-normal", rng.lognormal(size=D).astype(np.float32))
    for done, update, layout in cnn_updates(ROUNDS):
        yield Vector(f"CNN, round {done}", update, np.array(layout.lengths))


def settings(name: str, fineness: float) -> tuple[int, float]:
    """s and stretch for a real number that makes frames larger as it grows."""
    if name == "natural":  # half the smallest level for each unit
        return math.ceil(fineness), 2.0 ** (math.ceil(fineness) - fineness)
    if name == "stc":
        return max(1, round(1 / fineness)), 1.0
    if name == "terngrad":
        return 1, 1 / fineness
    return whole_levels(fineness)


RANGE = {"natural": (1.0, 126.0), "stc": (1 / 65_000, 1.0), "terngrad": (1e-4, 1.0)}


def compress(vector: Vector, name: str, norm: str | None, s: int, stretch: float, draw: int) -> bytes:
    return aq.compress(vector.x, s, aq.stream_key(0, 0, draw), "auto", vector.segments, stretch, name, norm)


def bits(frame: bytes, vector: Vector) -> float:
    return 8 * len(frame) / len(vector.x)


def search(vector: Vector, name: str, norm: str | None, wanted: float) -> tuple[int, float] | None:
    """The settings whose frame has the bits that are wanted, or up to 3 % fewer where sizes jump; None otherwise."""
    low, high = map(math.log, RANGE.get(name, (1e-4, 65_000.0)))

    def found(fineness: float) -> float:
        return bits(compress(vector, name, norm, *settings(name, math.exp(fineness)), 0), vector)

    if found(high) < wanted * (1 - CLOSE):
        return None
    for _ in range(TRIES):
        middle = (low + high) / 2
        here = found(middle)
        if abs(here / wanted - 1) < CLOSE:
            return settings(name, math.exp(middle))
        low, high = (middle, high) if here < wanted else (low, middle)
    return settings(name, math.exp(low)) if (1 - NEAR) * wanted < found(low) < wanted else None


def row(vector: Vector, name: str, norm: str | None, s: int, stretch: float, wanted: float | None) -> dict[str, Any]:
    errors, sizes = [], []
    x = vector.x.astype(np.float64)
    for draw in range(DRAWS):
        frame = compress(vector, name, norm, s, stretch, draw)
        errors.append(float(np.sum((aq.decode(frame).dequantize() - x) ** 2) / np.sum(x**2)))
        sizes.append(bits(frame, vector))
    shown = {"kind": vector.kind, "quantizer": name, "norm": norm, "wanted": wanted, "s": s, "stretch": stretch}
    return shown | {"bits": float(np.mean(sizes)), "error": float(np.mean(errors)), "errors": errors}


def searched(vector: Vector, bits: Sequence[float], only: str = "") -> Iterator[dict[str, Any]]:
    """Every quantizer but EDEN, or only this one, at each of these bits that its frames can have."""
    for name, norm in SEARCHED:
        for wanted in bits if only in ("", name) else ():
            if (found := search(vector, name, norm, wanted)) is not None:
                yield row(vector, name, norm, *found, wanted)


def measure(vector: Vector) -> Iterator[dict[str, Any]]:
    yield from searched(vector, BITS)
    for s in EDEN:
        eden = row(vector, "eden", None, s, 1.0, None)
        yield eden
        for name in OURS:
            if (found := search(vector, name, None, eden["bits"])) is not None:
                yield row(vector, name, None, *found, eden["bits"]) | {"beside": f"eden {s}"}


if __name__ == "__main__":
    arguments = options(__doc__ or "", only="one quantizer: its rows of the record are replaced, the others stay")
    rows = []
    if arguments.only:
        # EDEN, and ours at EDEN's bits, are measured together: only a run without --only makes them
        replaceable = {name for name, _ in SEARCHED} - set(OURS)
        if arguments.only not in replaceable or not arguments.out:
            sys.exit(f"--only needs --out and one of {', '.join(sorted(replaceable))}.")
        known = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]
        rows = [one for one in known if one["quantizer"] != arguments.only]
    for vector in vectors():
        print(vector.kind, flush=True)
        rows += searched(vector, BITS, arguments.only) if arguments.only else measure(vector)
    record(arguments.out, {"d": D, "draws": DRAWS, "rounds": list(ROUNDS), "rows": rows})
