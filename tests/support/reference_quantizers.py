"""What the levels of each quantizer stand for, in plain Python, written from docs/wire-format.md alone."""

from __future__ import annotations

import math
from itertools import pairwise

from support.reference_decoder import QUANTIZERS, Decoded

MASK = 2**32 - 1
SIGNS = 0x6A09E667BB67AE85
ROW = math.sqrt(3) / 2


def floats(frame: Decoded) -> list[float]:
    """The vector that a frame stands for."""
    values, start = [], 0
    for j, length in enumerate(frame.segments or [frame.dimension]):
        values += _segment(frame, j, start, frame.values[start : start + length])
        start += length
    return values


def _segment(frame: Decoded, j: int, start: int, levels: list[int]) -> list[float]:
    name, scale, s, key = QUANTIZERS[frame.quantizer].name, frame.scales[j], frame.s, frame.key or 0
    step = scale / s
    if name in ("uniform", "nearest", "fitted"):
        return [step * level for level in levels]
    if name in ("terngrad", "stc"):
        return [scale * level for level in levels]
    if name == "natural":
        return [math.copysign(scale * 2.0 ** (abs(level) - s), level) if level else 0.0 for level in levels]
    if name == "lattice":
        return _lattice(step, start, levels, key)
    if name == "rotated":
        return _back([step * level for level in levels], start, key)
    c = lloyd_max(s) if name == "eden" else _steps(frame.numbers[0] / s, max(map(abs, levels)))
    return _back([math.copysign(scale * c[abs(level)], level) for level in levels], start, key)


def draw(i: int, key: int) -> float:
    """v(i)."""
    x = (i * 0x9E3779B9 + (key & MASK)) & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = x ^ (x >> 15) ^ (key >> 32)
    x = (x * 0x846CA68B) & MASK
    return ((x ^ (x >> 16)) >> 1) / 2**31


def _back(y: list[float], start: int, key: int) -> list[float]:
    """D H y."""
    size = len(y)
    turned = [
        sum(-value if (r & c).bit_count() % 2 else value for c, value in enumerate(y)) / math.sqrt(size)
        for r in range(size)
    ]
    return [-value if draw(start + i, key ^ SIGNS) >= 0.5 else value for i, value in enumerate(turned)]


def _lattice(step: float, start: int, levels: list[int], key: int) -> list[float]:
    values = []
    for i in range(0, len(levels) - 1, 2):
        v, w = draw(start + i, key), draw(start + i + 1, key)
        t = (v + w / 2, w * ROW)
        candidates = [(a, b) for b in (0, 2, 1) for a in (0, 1, 2)]  # t lies between them
        near = _point(*min(candidates, key=lambda ab: math.dist(_point(*ab), t)))
        point = _point(levels[i], levels[i + 1])
        values += [step * (point[k] - (t[k] - near[k])) for k in range(2)]
    if len(levels) % 2:
        values.append(step * (levels[-1] - (draw(start + len(levels) - 1, key) - 0.5)))
    return values


def _point(a: int, b: int) -> tuple[float, float]:
    return a + b % 2 / 2, b * ROW


def _mean(a: float, b: float) -> float:
    """Of a standard Gaussian between a and b, which are not negative: density over upper tails."""
    if a > 30:
        return a
    density = math.exp(-a * a / 2) - math.exp(-b * b / 2)
    return density * math.sqrt(2 / math.pi) / (math.erfc(a / math.sqrt(2)) - math.erfc(b / math.sqrt(2)))


def _steps(width: float, count: int) -> list[float]:
    return [0.0] + [_mean((k - 0.5) * width, (k + 0.5) * width) for k in range(1, count + 1)]


def lloyd_max(s: int) -> list[float]:
    """c(0) to c(s)."""
    c = [(k - 0.5) / s * 3 for k in range(1, s + 1)]
    for _ in range(20_000):
        edges = [0.0] + [(a + b) / 2 for a, b in pairwise(c)] + [math.inf]
        new = [_mean(a, b) for a, b in pairwise(edges)]
        if max(abs(a - b) for a, b in zip(c, new, strict=True)) < 1e-11:
            break
        c = new
    return [0.0, *c]
