"""Who takes part in a round: all clients, or a seeded sample with weights that leave the expected update as it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..quantizers.streams import stream_key
from ..runs.config import Config
from .messages import Federation

_COHORT = -1  # in place of a client: the stream that draws the sample


@dataclass(frozen=True)
class Cohort:
    """A round's clients in ascending order, each with its weight in the sum (eq. 3)."""

    weights: dict[int, float]

    @property
    def clients(self) -> tuple[int, ...]:
        return tuple(self.weights)

    @cached_property
    def total(self) -> float:
        """What the weights add up to: 1, or 1 on average where clients of unequal size are drawn uniformly."""
        return sum(self.weights.values())


def cohort(config: Config, federation: Federation, round: int) -> Cohort:
    """The sample of a round.

    "uniform": m of n without replacement, each with weight p_i n / m. "size": m draws with replacement, client i with
    probability p_i, and weight 1 / m for each time that it is drawn.
    """
    n, m, p = config.clients, config.clients_per_round or config.clients, federation.weights
    if m == n:
        return Cohort(dict(enumerate(p)))
    key = np.array([stream_key(config.seed, round, _COHORT), 0], dtype=np.uint64)
    rng = np.random.Generator(np.random.Philox(key=key))
    if config.sampling == "uniform":
        return Cohort({int(i): p[i] * n / m for i in np.sort(rng.choice(n, m, replace=False))})
    drawn, times = np.unique(rng.choice(n, m, p=p), return_counts=True)
    return Cohort({int(i): int(c) / m for i, c in zip(drawn, times, strict=True)})
