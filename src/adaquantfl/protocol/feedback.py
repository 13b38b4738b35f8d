"""Error feedback: a client adds what it left out of an update to the next one.

A rule may take rounds back. What a client left out in such a round was never left out, so that the client keeps its
remainder from before each of its last rounds and returns to it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from .arrays import Vector

ROUNDS_KEPT = 2  # a rule takes at most the last two rounds back


@dataclass(frozen=True, eq=False)
class Remainder:
    """What a client left out so far (None: nothing), and before each of its last rounds: (round, remainder)."""

    value: Vector | None = None
    before: tuple[tuple[int, Vector | None], ...] = ()

    def before_round(self, round: int, taken_back: Collection[int] = ()) -> Remainder:
        """The remainder to begin a round with, as if the rounds taken back had not been.

        A round that is asked for again, because a reply was lost or the server was restored, counts once.
        """
        for place, (earlier, value) in enumerate(self.before):
            if earlier in taken_back or earlier >= round:
                return Remainder(value, self.before[:place])
        return self

    def of_length(self, dimension: int) -> Remainder:
        """This remainder, or none where it is that of a model with another number of elements."""
        kept = [value for value in (self.value, *(value for _, value in self.before)) if value is not None]
        return self if all(len(value) == dimension for value in kept) else Remainder()

    def added_to(self, update: Vector) -> Vector:
        """The update with what was left out."""
        return update if self.value is None else update + self.value

    def after(self, round: int, left_out: Vector) -> Remainder:
        """The remainder after a round."""
        return Remainder(left_out, (*self.before, (round, self.value))[-ROUNDS_KEPT:])

    def state(self) -> dict[str, object]:
        """Arrays and numbers, to be written down."""
        nothing = np.empty(0, dtype=np.float32)
        rounds = [{"round": round, "value": nothing if value is None else value} for round, value in self.before]
        return {"value": nothing if self.value is None else self.value, "before": rounds}

    @staticmethod
    def restore(state: dict[str, object]) -> Remainder:
        """The way back."""

        def some(value: object) -> Vector | None:
            array = np.asarray(value, dtype=np.float32)
            return array if array.size else None

        before = tuple((int(one["round"]), some(one["value"])) for one in state["before"])  # type: ignore[attr-defined]
        return Remainder(some(state["value"]), before)
