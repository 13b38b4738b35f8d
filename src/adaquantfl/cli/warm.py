"""`adaquantfl warm`: compile every kernel once, so that no later process has to."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from ..codecs.accumulator import Accumulator
from ..codecs.coding import compress, decode, encode
from ..codecs.registry import BUILT_IN
from ..quantizers.levels import quantize
from ..quantizers.registry import BUILT_IN as QUANTIZERS
from ..quantizers.registry import find

LEVELS = (1, 200, 5_000, 40_000)  # small and large integers, arithmetic in float32 and in float64
DIMENSION = 20_000  # whole blocks and an incomplete one; long enough for `auto` to choose by its estimates


@dataclass(frozen=True)
class Warmed:
    """How many kernels were compiled and how many were there already, where they are kept, and what it took."""

    compiled: int
    loaded: int
    folders: tuple[str, ...]  # where they are kept; empty where no folder can be read or written
    cpu_seconds: float


def warm(report: Callable[[str], None] = lambda line: None) -> Warmed:
    """Send and receive a frame of each quantizer, codec and type of level."""
    began = time.process_time()
    x = np.random.default_rng(0).standard_normal(DIMENSION, dtype=np.float32)
    for name in QUANTIZERS:
        report(name)
        kind = find(name)
        for s in sorted({min(s, kind.most) for s in LEVELS}):
            for codec in BUILT_IN if kind.from_paper else ("fixed",):
                total, levels = Accumulator(DIMENSION), quantize(x, s, 1, quantizer=name)
                total.add(encode(levels, codec))
                total.result()
                decode(compress(x, s, 1, codec, quantizer=name)).dequantize()
    for s in (100, 1_000):  # long and with many levels in use: the wide body of the dense codec, in both integers
        for codec in ("dense", "auto"):
            decode(compress(np.tile(x, 4), s, 1, codec, norm="linf"))
    for s in LEVELS:  # short ones, of which `auto` takes exactly the smallest frame
        encode(quantize(x[:1_000], s, 1))
    kernels = [kernel for kernel in _kernels() if kernel.stats.cache_path]
    return Warmed(
        sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels),
        sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels),
        tuple(sorted({os.path.abspath(kernel.stats.cache_path) for kernel in kernels})),
        time.process_time() - began,
    )


def _kernels() -> Iterator[Any]:
    """Every kernel of the package that has been imported."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("adaquantfl."):
            for item in vars(module).values():
                if isinstance(item, Dispatcher) and item.__module__ == name:
                    yield item
