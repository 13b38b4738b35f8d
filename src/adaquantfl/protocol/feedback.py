"""Error feedback: a client adds what it left out of an update to the next one.

A rule may undo rounds. What a client left out in such a round then does not count. So the client keeps its remainder
from before each of its last rounds and returns to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import trees
from .arrays import Vector

ROUNDS_KEPT = 2  # a rule takes at most the last two rounds back
MOST_LATE = 3  # copies of earlier orders in a row; more of them are the orders of a server that was restored


@dataclass(frozen=True, eq=False)
class Remainder:
    """What a client left out so far (None: nothing), and before each of its last rounds: (round, remainder).

    later: the newest remainder, kept while an older round is replayed.
    again: how many different orders of earlier rounds were answered since.
    """

    value: Vector | None = None
    before: tuple[tuple[int, Vector | None], ...] = ()
    later: Remainder | None = None
    again: int = 0

    @property
    def known(self) -> bool:
        """Whether anything was ever left out."""
        return self.value is not None or bool(self.before)

    @property
    def latest(self) -> int:
        """The latest round that the remainder knows of; -1 where there is none."""
        return self.before[-1][0] if self.before else -1

    def before_round(self, round: int, taken_back: Collection[int] = ()) -> Remainder:
        """Return the remainder to begin a round with, as if the rounds taken back had not been.

        A round that is asked for again counts once. Its order may be a late copy, or it may come from a server that was
        restored and will ask for the later rounds again. The next orders tell. If one is of a new round, the earlier
        one was a late copy, and the remainder after the client's latest round counts.
        """
        if self.later is not None and round > self.later.latest:
            return self.later.before_round(round, taken_back)
        known, later, again = self.later or self, None, 0
        if round < known.latest and self.again < MOST_LATE:
            later, again = known, self.again + (round != self.latest)  # copies of one order count once
        for place, (earlier, value) in enumerate(self.before):
            if earlier in taken_back or earlier >= round:
                return Remainder(value, self.before[:place], later, again)
        return Remainder(self.value, self.before, later, again)

    def of_length(self, dimension: int) -> Remainder:
        """This remainder, or none where it is that of a model with another number of elements."""
        kept = [value for value in (self.value, *(value for _, value in self.before)) if value is not None]
        return self if all(len(value) == dimension for value in kept) else Remainder()

    def added_to(self, update: Vector) -> Vector:
        """The update with what was left out."""
        return update if self.value is None else update + self.value

    def all_sent(self, round: int) -> Remainder:
        """The remainder after a round that left nothing out. Nothing is kept once no rule can take it back."""
        if self.value is not None:
            return self.after(round, None)
        return Remainder() if self.before and round - self.latest > ROUNDS_KEPT else self

    def after(self, round: int, left_out: Vector | None) -> Remainder:
        """The remainder after a round. left_out: None where all was sent."""
        return Remainder(left_out, (*self.before, (round, self.value))[-ROUNDS_KEPT:], self.later, self.again)

    def state(self) -> dict[str, object]:
        """Arrays and numbers, to be written down."""
        nothing = np.empty(0, dtype=np.float32)
        rounds = [{"round": round, "value": nothing if value is None else value} for round, value in self.before]
        later = {} if self.later is None else {"later": self.later.state(), "again": self.again}
        return {"value": nothing if self.value is None else self.value, "before": rounds, **later}

    @staticmethod
    def restore(state: Mapping[str, Any]) -> Remainder:
        """The way back."""

        def some(value: object) -> Vector | None:
            array = trees.vector(value)
            return array if array.size else None

        before = tuple((trees.whole_number(one["round"]), some(one["value"])) for one in state["before"])
        later = Remainder.restore(state["later"]) if "later" in state else None
        return Remainder(some(state["value"]), before, later, trees.whole_number(state.get("again", 0)))
