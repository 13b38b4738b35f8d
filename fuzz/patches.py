"""Differences of two arrays, mutated field by field, and what must hold for each of them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from adaquantfl.codecs import patch as patches
from adaquantfl.codecs.difference import Moves, read_distances
from adaquantfl.errors import FrameError

from . import frames
from .oracles import Finding

NUMBERS = (0, 1, 2, 255, 2**31, 2**32, 2**53, 2**64 - 1)
MADE_RIGHT = 0.6  # of the mutants get the sum that their moves lead to
_PLANE_LENGTH = 8  # bytes in front of each part of a difference of float32 arrays


@dataclass(frozen=True)
class Seed:
    """A difference and the array that it starts from."""

    old: Any
    difference: bytes


def seeds() -> list[Seed]:
    """Of all types and kinds: few and many changes, small and large ones."""
    found = []
    for dimension in (1, 33, 1030):
        rng = np.random.default_rng(dimension)
        values = rng.standard_normal(dimension).astype(np.float32)
        for dtype in (np.float32, np.float16, np.uint16):
            old = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == np.uint16 else values.astype(dtype)
            bits = old.view(np.uint32 if dtype == np.float32 else np.uint16)
            for changed, step in ((0.02, 1), (0.5, 3), (1.0, 200)):
                moved = bits + (rng.random(dimension) < changed) * rng.integers(0, step + 1, dimension)
                found.append(Seed(old, patches.diff(old, moved.astype(bits.dtype).view(old.dtype))))
            found.append(Seed(old, patches.diff(old, rng.permutation(old))))
    return found


class PatchOracle:
    """Mutates differences and applies them. `patch` returns the reason of the refusal or None."""

    def __init__(self, chance: Random, mutator: frames.Mutator, starts: list[Seed]) -> None:
        self.chance, self.mutator, self.starts = chance, mutator, starts
        self.data = b""  # the last difference, for a finding
        self.runs = (self.patch,)

    def patch(self) -> str | None:
        """A difference, applied in place and to a copy."""
        seed = self.chance.choice(self.starts)
        data = self.data = self._mutated(seed)
        weights = seed.old.copy()
        try:
            patches.patch(weights, data, out=weights)
        except FrameError as error:
            if weights.tobytes() != seed.old.tobytes():
                raise Finding("a refused difference changed the weights") from None
            return str(error)
        if patches.patch(seed.old, data).tobytes() != weights.tobytes():
            raise Finding("a copy is patched otherwise than the weights in place")
        if patches.patch(seed.old, patches.diff(seed.old, weights)).tobytes() != weights.tobytes():
            raise Finding("the difference to what was read leads elsewhere")
        return None

    def _mutated(self, seed: Seed) -> bytes:
        chance, header = self.chance, patches._HEADER
        magic, kind, form, elements, check = header.unpack_from(seed.difference)
        body = seed.difference[header.size :]
        if chance.random() < 0.8:
            body = self._body(body, form)
        if chance.random() < 0.1:
            kind, form = chance.choice((kind, 0, 1, 2, 255)), chance.choice((form, 0, 1, 2, 255))
        if chance.random() < 0.05:
            elements = chance.choice(NUMBERS)
        if chance.random() < MADE_RIGHT:
            check = _sum_behind(seed.old, form, body)
        elif chance.random() < 0.2:
            check = chance.choice(NUMBERS)
        data: bytes = header.pack(magic, kind, form, elements, check) + body
        return self.mutator.raw(data) if chance.random() < 0.05 else data

    def _body(self, body: bytes, form: int) -> bytes:
        """Another body: its frame mutated as frames are, or any of its bytes."""
        if form == patches._WHOLE or not body or self.chance.random() < 0.3:
            return self.mutator.raw(body)
        if form == patches._LEVELS:
            return self._frame(body)
        size = int.from_bytes(body[:_PLANE_LENGTH], "little")
        signs = self._frame(body[_PLANE_LENGTH : _PLANE_LENGTH + size])
        return len(signs).to_bytes(_PLANE_LENGTH, "little") + signs + body[_PLANE_LENGTH + size :]

    def _frame(self, data: bytes) -> bytes:
        pool, self.mutator.pool = self.mutator.pool, [frames.take_apart(data)]
        parts, _ = self.mutator.mutant()
        self.mutator.pool = pool
        return parts.build()


def _sum_behind(old: Any, form: int, body: bytes) -> int:
    """The sum that makes a difference right; 0 where there is none."""
    bits = old.view(np.uint32 if old.dtype == np.float32 else np.uint16).copy()
    try:
        if form == patches._WHOLE:
            return int(np.frombuffer(body, bits.dtype).sum(dtype=np.uint64))
        read = read_distances if form == patches._PLANES else Moves.of_frame
        return read(body, len(bits)).apply(bits)
    except ValueError:  # FrameError is one, and so is what NumPy says of a body of another length
        return 0
