"""Packing a block of 1024 codes as straight-line code, made for each width when it is first compiled.

With constant shifts, one loop over the 32 lanes holds all 32 rows, and LLVM keeps the words in registers. A loop over
the rows writes every word back for each row and takes twice the time; reading (fixed.py) has no such cost and is one
kernel for all widths. The width reaches the compiler as the length of a tuple, so that each width is a type of its own
and Numba's cache on disk keeps them apart.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

Width = tuple[int, ...]


def width_of(bits: int) -> Width:
    """The tuple that stands for a width."""
    return (0,) * bits


def pack_block(codes: Any, width: Any, words: Any) -> None:
    """words[32 w + lane] = word w of the lane's 32 codes, lowest bits first. Only from compiled code."""


@overload(pack_block)
def _pack_block(codes, width, words):
    bits = len(width)
    terms: list[list[str]] = [[] for _ in range(bits)]
    for row in range(32):
        word, shift = divmod(row * bits, 32)
        terms[word].append(f"np.uint32(codes[{32 * row} + lane] << np.uint32({shift}))")
        if shift + bits > 32:  # the code's upper bits go to the next word
            terms[word + 1].append(f"np.uint32(codes[{32 * row} + lane] >> np.uint32({32 - shift}))")
    lines = [f"  words[{32 * word} + lane] = {' | '.join(parts)}" for word, parts in enumerate(terms)]
    names: dict[str, Any] = {"np": np}
    exec("\n".join(["def block(codes, width, words):", " for lane in range(32):", *lines]), names)
    return names["block"]
