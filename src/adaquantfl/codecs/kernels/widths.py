"""Packing a block of 1024 codes as straight-line code, made for each width when it is first compiled.

With constant shifts, one loop over the 32 lanes holds all 32 rows and LLVM vectorises it whole; a loop over rows with
computed shifts is 9x slower. The width reaches the compiler as the length of a tuple, so that each width is a type of
its own and Numba's cache on disk keeps them apart.
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


def unpack_block(words: Any, width: Any, codes: Any) -> None:
    """The inverse of pack_block."""


def add_block(words: Any, width: Any, step: Any, total: Any) -> None:
    """total += step x signed level for a whole block; the code's top bit is the sign."""


@overload(pack_block)
def _pack_block(codes, width, words):
    bits = len(width)
    terms: list[list[str]] = [[] for _ in range(bits)]
    for row in range(32):
        word, shift = divmod(row * bits, 32)
        terms[word].append(f"np.uint32(codes[{32 * row} + lane] << np.uint32({shift}))")
        if shift + bits > 32:  # the code's upper bits go to the next word
            terms[word + 1].append(f"np.uint32(codes[{32 * row} + lane] >> np.uint32({32 - shift}))")
    lines = [f"words[{32 * word} + lane] = {' | '.join(parts)}" for word, parts in enumerate(terms)]
    return _per_lane("codes, width, words", lines)


@overload(unpack_block)
def _unpack_block(words, width, codes):
    lines = [f"codes[{32 * row} + lane] = {_code(row, len(width))}" for row in range(32)]
    return _per_lane("words, width, codes", lines)


@overload(add_block)
def _add_block(words, width, step, total):
    bits = len(width)
    lines = []
    for row in range(32):
        lines += [
            f"code = {_code(row, bits)}",
            f"level = np.float32(np.int32(code & np.uint32({2 ** (bits - 1) - 1})))",
            f"part = step * (-level if code > np.uint32({2 ** (bits - 1) - 1}) else level)",
            f"total[{32 * row} + lane] += np.float32(part)",
        ]
    return _per_lane("words, width, step, total", lines)


def _code(row: int, bits: int) -> str:
    """The expression that reads one code."""
    word, shift = divmod(row * bits, 32)
    text = f"np.uint32(words[{32 * word} + lane] >> np.uint32({shift}))"
    if shift + bits > 32:
        text = f"({text} | np.uint32(words[{32 * (word + 1)} + lane] << np.uint32({32 - shift})))"
    return f"{text} & np.uint32({2**bits - 1})"


def _per_lane(arguments: str, lines: list[str]) -> Any:
    source = "\n".join([f"def block({arguments}):", " for lane in range(32):", *(f"  {line}" for line in lines)])
    names: dict[str, Any] = {"np": np}
    exec(source, names)
    return names["block"]
