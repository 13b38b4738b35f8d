"""Numbers of levels s that give every width of the fixed-length code, powers of two and others."""

from __future__ import annotations

EVERY_WIDTH = [1, 2, 3, 5, 100, 200, 255, 5000, 40_000, 65_535, *(2**bits - 1 for bits in range(3, 16))]
