"""Who takes part in a round, with which weight, and how many must answer for it to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from ..errors import ConfigError, EngineError
from ..quantizers.streams import stream_key

_COHORT = -1  # in place of a client: the stream that draws the sample
_MOST_REASONS = 5  # named in a sentence; a thousand clients may be missing
_MOST_NAMES = 20


@dataclass(frozen=True)
class Shares:
    """The weight of each client of a round in the sum (eq. 3), in ascending order of clients.

    total: what the weights add up to: 1, or 1 on average where clients of unequal size are drawn uniformly.
    complete: whether they are all the clients there are, so that nothing is scaled where all of them answer.
    """

    weights: Mapping[int, float]
    total: float
    complete: bool


@dataclass(frozen=True)
class Cohort:
    """The clients of a run. examples: m_i of each; none where they are not known before the clients answer.

    per_round: a seeded sample of m of the n clients takes part in each round, each with weight p_i n / m; 0 is
    everybody. least: how many must answer; 0 is all that were asked.

    >>> sorted(Cohort((600, 300, 100), per_round=2).draw(seed=0, round=0).weights)
    [0, 2]
    """

    examples: tuple[int, ...] = ()
    per_round: int = 0
    least: int = 0

    def __post_init__(self) -> None:
        clients = len(self.examples)
        if any(not m >= 1 for m in self.examples):  # nor NaN
            raise ConfigError("Every client of a cohort has at least 1 example.")
        if self.per_round < 0 or (clients and self.per_round > clients):
            raise ConfigError(f"per_round = {self.per_round}: there are {clients} clients; 0 asks all of them.")
        if self.least < 0:
            raise ConfigError(f"min_clients = {self.least}: it is a number from 0; 0 is all that are asked.")

    @cached_property
    def p(self) -> tuple[float, ...]:
        """p_i = m_i / sum of m."""
        total = sum(self.examples)
        return tuple(m / total for m in self.examples)

    def shares(self, seed: int, round: int, clients: Sequence[int] | None) -> Shares | None:
        """Return the weights of a round, or None if the replies have to tell. clients: None draws them."""
        if clients is None:
            return self.draw(seed, round)
        if not self.examples:
            return None
        if others := [client for client in clients if client >= len(self.examples)]:
            raise EngineError(f"Client {others[0]} is not in the cohort, which has {len(self.examples)} clients.")
        return by_examples({client: self.examples[client] for client in clients})

    def draw(self, seed: int, round: int) -> Shares:
        """Draw the clients of a round."""
        if not self.examples:
            raise ConfigError("Name the clients of the round: open([0, 1, 2]). This server does not know who there is.")
        n, m, p = len(self.p), self.per_round or len(self.p), self.p
        if m == n:
            weights = dict(enumerate(p))
            return Shares(weights, sum(weights.values()), True)
        key = np.array([stream_key(seed, round, _COHORT), 0], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        weights = {int(i): p[i] * n / m for i in np.sort(rng.choice(n, m, replace=False))}
        return Shares(weights, sum(weights.values()), False)

    def noise(self, clients: Sequence[int], examples: Mapping[int, int]) -> float:
        """How much of one client's noise is left, on average, when the updates of a round are added up."""
        if self.examples and (self.per_round or len(clients) >= len(self.p)):
            share = (self.per_round or len(self.p)) / len(self.p)
            return sqrt(sum(p * p for p in self.p) / share)
        if self.examples:  # the caller has named some of the clients
            examples = {**examples, **dict(enumerate(self.examples))}
        sizes = np.array([examples.get(client, 0) for client in clients], dtype=np.float64)
        sizes[sizes == 0] = sizes[sizes > 0].mean() if sizes.any() else 1.0
        return float(np.sqrt(np.sum((sizes / sizes.sum()) ** 2)))

    def population(self, clients: Sequence[int], examples: Mapping[int, int]) -> dict[int, float]:
        """p_i of everybody that is known, for rules that give each client levels by its weight."""
        if self.examples and max(clients) < len(self.examples):
            return dict(enumerate(self.p))
        known = {client: examples.get(client, 0) for client in clients}
        usual = max(1.0, float(np.mean([m for m in known.values() if m] or [1])))
        sizes = {client: m or usual for client, m in known.items()}
        return {client: m / sum(sizes.values()) for client, m in sizes.items()}

    def enough(self, missing: int, asked: int) -> bool:
        """Say whether those who answered are enough."""
        return asked - missing >= self._needed(asked)

    def check(self, missing: Mapping[int, str], asked: int, when: str, error: type[EngineError] = EngineError) -> None:
        """Raise `error` if too few of those asked answered. missing: client -> why.

        >>> Cohort(least=4).check({1: "no answer."}, asked=4, when="Round 3")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        adaquantfl.errors.EngineError: Round 3: 3 of 4 clients answered, but min_clients = 4. Missing: ...
        """
        if self.enough(len(missing), asked):
            return
        needed = f"min_clients = {self._needed(asked)}" if self.least else "all of them are needed (min_clients = 0)"
        raise error(
            f"{when}: {asked - len(missing)} of {asked} clients answered, but {needed}. "
            f"Missing: {who_is_missing(missing)} To continue without such clients, set min_clients to how many must "
            "answer."
        )

    def _needed(self, asked: int) -> int:
        return min(self.least or asked, asked)


def by_examples(examples: Mapping[int, int]) -> Shares:
    """The weights of those who answered, by the number of examples that each of them names."""
    total = sum(examples.values())
    return Shares({client: m / total for client, m in sorted(examples.items())}, 1.0, True)


def who_is_missing(missing: Mapping[int, str]) -> str:
    """Clients with their reasons, those with the same one together.

    >>> who_is_missing({1: "killed by signal 9.", 4: "no answer.", 2: "killed by signal 9."})
    'clients 1, 2: killed by signal 9. Client 4: no answer.'
    """
    by_reason: dict[str, list[int]] = {}
    for client in sorted(missing):
        by_reason.setdefault(missing[client], []).append(client)
    parts = []
    for reason, clients in list(by_reason.items())[:_MOST_REASONS]:
        names = ", ".join(map(str, clients[:_MOST_NAMES])) + (", ..." if len(clients) > _MOST_NAMES else "")
        parts.append(f"client{'s' if len(clients) > 1 else ''} {names}: {reason}")
    text = " ".join(part if i == 0 else part.capitalize()[0] + part[1:] for i, part in enumerate(parts))
    others = len(by_reason) - _MOST_REASONS
    return text + (f" And {others} more reasons in the history." if others > 0 else "")
