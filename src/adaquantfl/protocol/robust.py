"""Server steps that survive some hostile clients: coordinate-wise median and trimmed mean, and Krum's selection.

Yin, Chen, Kannan, Bartlett 2018 (median, trimmed mean); Blanchard, El Mhamdi, Guerraoui, Stainer 2017 (Multi-Krum).
Every client counts the same here: how much data it has is its own claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import ConfigError, EngineError
from .arrays import AnyArray
from .step import ServerStep
from .updates import Combined, Updates


@dataclass(frozen=True)
class Median(ServerStep):
    """The median of each element over the clients; of an even number of clients, the mean of the middle two.

    With few levels most elements are 0, and so is their median: use it with fine levels.

    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(3, dtype=np.float32), rule=aq.Fixed(bits=8), step="median")
    """

    name: ClassVar[str] = "median"
    reference: ClassVar[str] = "Yin, Chen, Kannan, Bartlett 2018; docs/security.md"

    def combine(self, updates: Updates) -> Combined:
        return updates.by_element(lambda values: _middle(values, (len(values) - 1) // 2))


@dataclass(frozen=True)
class TrimmedMean(ServerStep):
    """The mean of each element without its largest and its smallest values.

    share: of the clients, left out at each end. Their number is rounded up: 0.2 of 8 clients are 2 at each end. At
    least the median remains.

    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(3, dtype=np.float32), rule=aq.Fixed(bits=8), step=TrimmedMean(share=0.25))
    """

    share: float = 0.2
    name: ClassVar[str] = "trimmed-mean"
    reference: ClassVar[str] = "Yin, Chen, Kannan, Bartlett 2018; docs/security.md"

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share < 0.5:
            raise ConfigError(f"share = {self.share!r}: the share that is left out at each end is from 0 to below 0.5.")

    def combine(self, updates: Updates) -> Combined:
        wanted = math.ceil(self.share * len(updates) - 1e-9)  # 0.2 x 5 is 1, whatever the last bit says
        return updates.by_element(lambda values: _middle(values, min(wanted, (len(values) - 1) // 2)))


@dataclass(frozen=True)
class Krum(ServerStep):
    """The mean of the updates that lie closest to the others. hostile: how many clients are left out.

    Of n clients, each is scored by the sum of its squared distances to the n - hostile - 2 nearest others. The
    `hostile` clients with the highest scores are left out. It takes 2 hostile + 3 clients.

    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(3, dtype=np.float32), step=Krum(hostile=2))
    """

    hostile: int = 1
    name: ClassVar[str] = "krum"
    reference: ClassVar[str] = "Blanchard et al. 2017, Multi-Krum; docs/security.md"

    def __post_init__(self) -> None:
        if isinstance(self.hostile, bool) or not isinstance(self.hostile, int) or self.hostile < 1:
            raise ConfigError(f"hostile = {self.hostile!r}: krum leaves out a whole number of clients, at least 1.")

    @property
    def needed(self) -> int:
        """How many clients must answer."""
        return 2 * self.hostile + 3

    def combine(self, updates: Updates) -> Combined:
        n = len(updates)
        if n < self.needed:
            raise EngineError(
                f"step = 'krum' with hostile = {self.hostile} takes {self.needed} updates; there are {n}."
            )
        # The nearest is the update itself, at distance 0.
        far_off, distances = updates.far_off(), updates.squared_distances()
        for place in far_off:
            distances[place, :] = distances[:, place] = np.inf
            distances[place, place] = 0.0
        nearest = np.sort(distances, axis=1)[:, 1 : n - self.hostile - 1]
        order = np.argsort(nearest.sum(axis=1), kind="stable").tolist()  # of equal scores, the lower client first
        kept = sorted([place for place in order if place not in far_off][: n - self.hostile])
        if not kept:
            raise EngineError("step = 'krum': every update moves an array that is not quantized too far.")
        left_out = tuple(one.client for place, one in enumerate(updates.each) if place not in kept)
        return replace(updates.only(kept).sum(), left_out=left_out)


def _middle(values: AnyArray, trimmed: int) -> AnyArray:
    """The mean of each column without its `trimmed` largest and smallest values."""
    ordered = np.sort(values, axis=0)[trimmed : len(values) - trimmed]
    middle: AnyArray = ordered[0] if len(ordered) == 1 else ordered.mean(axis=0, dtype=np.float64)
    return middle
