"""How the test set's value rises with rounds and bytes, and what was spent until it was as good as another run's."""

from __future__ import annotations

import math
from dataclasses import dataclass

SMOOTHED = 5  # evaluations in the trailing mean of a curve
WITHIN = 0.005  # of float32's final accuracy; of a loss, this share of it


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run's evaluations. value: test accuracy or, where accuracy is False, test loss. up, down: bytes so far."""

    accuracy: bool
    round: list[int]
    value: list[float]
    up: list[int]
    down: list[int]

    @property
    def both(self) -> list[int]:
        """Bytes up and down so far."""
        return [up + down for up, down in zip(self.up, self.down, strict=True)]

    @property
    def smoothed(self) -> list[float]:
        """The trailing mean of five evaluations; from the fifth on."""
        ends = range(SMOOTHED, len(self.value) + 1)
        return [sum(self.value[end - SMOOTHED : end]) / SMOOTHED for end in ends]

    def final(self, rounds: int) -> float | None:
        """Return the smoothed value after this many rounds."""
        places = [place for place, one in enumerate(self.round[SMOOTHED - 1 :]) if one <= rounds]
        complete = self.round and self.round[-1] >= rounds
        return self.smoothed[places[-1]] if places and complete else None

    def target(self, rounds: int) -> float:
        """Within 0.5 points of this run's final accuracy; 0.5 % above its final loss."""
        final = self.final(rounds)
        if final is None:
            return math.inf if self.accuracy else -math.inf
        return final - WITHIN if self.accuracy else final * (1 + WITHIN)

    def spent(self, target: float, which: str) -> float | None:
        """What was spent when the smoothed curve first met the target, linear between two evaluations. None: never.

        which: "up", "down", "both" or "round".
        """
        amounts: list[int] = getattr(self, which)[SMOOTHED - 1 :]
        sign, before = (1 if self.accuracy else -1), None
        for value, amount in zip(self.smoothed, amounts, strict=True):
            if sign * value >= sign * target:
                if before is None or value == before[0]:
                    return float(amount)
                share = (target - before[0]) / (value - before[0])
                return before[1] + share * (amount - before[1])
            before = (value, float(amount))
        return None
