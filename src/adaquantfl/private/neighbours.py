"""Who masks with whom: a random ring on which each client is the neighbour of the k / 2 next ones on either side.

With k of the order of log n this is the graph of SecAgg+ (Bell, Bonawitz, Gascon, Lepoint and Raykova, CCS 2020).
Shares of a client's secrets go to its neighbours, and `threshold` of them are needed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from math import comb

from ..errors import ConfigError

FEWEST = 3  # clients of a sum: with two, each would learn the other's update
FAILURE, LEAK = 2.0**-20, 2.0**-40  # how probable a round may be that is lost, or in which colluders learn an update


@lru_cache(maxsize=64)
def degree(clients: int, dropouts: int, colluding: int) -> tuple[int, int]:
    """The fewest neighbours, and the largest threshold for them, for this many clients in all. ConfigError.

    Whoever drops out or colludes is as good as drawn at random, since the ring is. Too few neighbours of
    a client stay with a probability of at most `FAILURE`; too many of them collude with one of at most `LEAK`.

    >>> degree(100, dropouts=30, colluding=10)
    (34, 11)
    """
    if clients < FEWEST:
        raise ConfigError(
            f"A private round needs {FEWEST} clients, and there are {clients}: a sum of fewer hides nobody."
        )
    others = clients - 1
    for k in (*range(2, others, 2), others):
        stay, collude = _counts(others, others - dropouts, k), _counts(others, min(colluding, others), k)
        few, threshold = 0.0, 0  # few: the probability that no more than `threshold` stay
        while threshold < k and (few + stay[threshold]) * clients <= FAILURE:
            few, threshold = few + stay[threshold], threshold + 1
        if threshold and sum(collude[threshold:]) * clients <= LEAK:
            return k, threshold
    raise ConfigError(
        f"With {clients} clients, of whom {dropouts} may drop out, {colluding} colluding ones would learn an update: "
        "lower dropouts or colluding, or ask more clients."
    )


def _counts(population: int, marked: int, drawn: int) -> list[float]:
    """How probable it is that 0, 1, ... of those drawn are marked."""
    total, unmarked = comb(population, drawn), population - max(marked, 0)
    return [comb(max(marked, 0), i) * comb(unmarked, drawn - i) / total for i in range(drawn + 1)]


def ring(clients: Sequence[int], k: int) -> dict[int, list[int]]:
    """The neighbours of each client, on a ring that nobody can foresee."""
    order, n = list(clients), len(clients)
    secrets.SystemRandom().shuffle(order)
    if k >= n - 1:
        return {one: sorted(other for other in order if other != one) for one in order}
    steps = [step for half in range(1, k // 2 + 1) for step in (half, -half)]
    return {one: sorted(order[(place + step) % n] for step in steps) for place, one in enumerate(order)}
