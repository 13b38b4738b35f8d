"""Numba, with this package's settings: no GIL, compiled once and cached on disk.

Imported only by modules that hold kernels, so that `import adaquantfl` stays light.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.cpython.unsafe import numbers

leading_zeros: Any = numbers.leading_zeros  # LLVM's counts of zeros, for kernels; of unsigned integers
trailing_zeros: Any = numbers.trailing_zeros

Function = Callable[..., Any]


def kernel(function: Function) -> Function:
    """Compile a function over arrays. Where no cache folder can be written, it is compiled in each process."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no place for its cache: a read-only installation
        return numba.njit(nogil=True)(function)


def reduction(function: Function) -> Function:
    """Compile a function whose sums may be added up in any fixed order, which lets LLVM vectorise them."""
    try:
        return numba.njit(nogil=True, cache=True, fastmath={"reassoc"})(function)
    except RuntimeError:
        return numba.njit(nogil=True, fastmath={"reassoc"})(function)


def inline(function: Function) -> Function:
    """Compile a scalar helper that kernels call; LLVM inlines it."""
    return numba.njit(inline="always")(function)
