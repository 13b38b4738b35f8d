"""Numbers of levels s for the fast tests of the fixed-length code.

Numba compiles its kernels anew for each width of a code, in up to ten seconds. The fast tests take 2, 3, 9 and 17 bits:
the smallest and largest width, and each type of integer. The slow ones take every width.
"""

from __future__ import annotations

import pytest

FAST = [1, 2, 3, 200, 255, 40_000, 65_535]


def fast_or_slow(numbers: list[int]) -> list[object]:
    """Parameters of a test: those with another width than the fast tests' are slow."""
    fast = {s.bit_length() for s in FAST}
    return [s if s.bit_length() in fast else pytest.param(s, marks=pytest.mark.slow) for s in numbers]


def few_or_all(few: list[int]) -> pytest.MarkDecorator:
    """A test with few numbers of levels, and with all widths as a slow one."""
    every = [*FAST, *(2**bits - 1 for bits in range(3, 16)), 5, 100, 5000]
    cases = [pytest.param(few, id="few"), pytest.param(every, id="all", marks=pytest.mark.slow)]
    return pytest.mark.parametrize("numbers", cases)
