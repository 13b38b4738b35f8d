"""The server step: how the clients' updates move the model. The paper's is their weighted sum (eq. 3).

A step has two parts. `combine` makes one update of the clients' updates; by default their weighted sum. `apply` says
what is added to the model, such as momentum; by default that update. What `apply` keeps is part of the state that is
rolled back. A step of your own is a subclass of `ServerStep` with a name and one part or both.

- With a memory, to which the round's update is a gradient: Hsu, Qi, Brown 2019 (momentum, FedAvgM); Douillard et al.
  2023 (Nesterov, as in DiLoCo); Reddi et al. 2021 (Adam).
- That survive some hostile clients: Yin, Chen, Kannan, Bartlett 2018 (median, trimmed mean); Blanchard, El Mhamdi,
  Guerraoui, Stainer 2017 (Multi-Krum). Every client counts the same there: how much data it has is its own claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError, Diverged, EngineError, called, returned
from ..open_registry import Registry, named_class
from ..quantizers.vectors import all_finite
from .arrays import AnyArray, Vector
from .updates import Combined, Updates


@dataclass(frozen=True)
class ServerStep:
    """How the model moves. name: by which a written-down state finds the class again. reference: where it is from."""

    name: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    is_sum: ClassVar[bool] = False  # whether it is the plain sum: then a client can add the round's frames up itself

    @property
    def averages(self) -> bool:
        """Whether the clients' noise averages out: it does in the plain sum."""
        return type(self).combine is ServerStep.combine

    def init(self, dimension: int) -> dict[str, Any]:
        """What the step keeps from round to round: arrays and numbers by name."""
        return {}

    def combine(self, updates: Updates) -> Combined:
        """One update of the clients' updates; and the same for the arrays that are not quantized."""
        return updates.sum()

    def apply(self, update: Vector, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
        """What is added to the model, given the combined update; and the state after it."""
        return update, state


@dataclass(frozen=True)
class Sum(ServerStep):
    """w_{k+1} = w_k + sum of p_i Q(update_i), nothing added (eq. 3)."""

    name: ClassVar[str] = "sum"
    reference: ClassVar[str] = "the paper"
    is_sum: ClassVar[bool] = True


@dataclass(frozen=True)
class Momentum(ServerStep):
    """m = beta m + update; w + eta m. eta: 0 takes 1 - beta: a constant update then moves w as the sum does.

    >>> step = Momentum(eta=1.0, beta=0.5)
    >>> moved, state = step.apply(np.ones(2, dtype=np.float32), step.init(2))
    >>> step.apply(np.ones(2, dtype=np.float32), state)[0].tolist()
    [1.5, 1.5]
    """

    eta: float = 0.0
    beta: float = 0.9
    name: ClassVar[str] = "momentum"
    reference: ClassVar[str] = "Hsu, Qi, Brown 2019, FedAvgM"

    def __post_init__(self) -> None:
        _check(eta=self.eta, beta=self.beta)

    def init(self, dimension: int) -> dict[str, Any]:
        return {"m": np.zeros(dimension, dtype=np.float32)}

    def apply(self, update: Vector, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
        m = np.float32(self.beta) * state["m"] + update
        return np.float32(self._rate()) * self._direction(update, m), {"m": m}

    def _rate(self) -> float:
        return self.eta or 1 - self.beta

    def _direction(self, update: Vector, m: Vector) -> Vector:
        return m


@dataclass(frozen=True)
class Nesterov(Momentum):
    """m = beta m + update; w + eta (update + beta m). eta: 0 takes DiLoCo's 0.7.

    >>> step = Nesterov(eta=1.0, beta=0.5)
    >>> step.apply(np.ones(2, dtype=np.float32), step.init(2))[0].tolist()
    [1.5, 1.5]
    """

    name: ClassVar[str] = "nesterov"
    reference: ClassVar[str] = "Douillard et al. 2023, DiLoCo"

    def _rate(self) -> float:
        return self.eta or 0.7

    def _direction(self, update: Vector, m: Vector) -> Vector:
        ahead: Vector = update + np.float32(self.beta) * m
        return ahead


@dataclass(frozen=True)
class Adam(ServerStep):
    """m and v are averages of the update and of its square; w + eta m / (sqrt(v) + epsilon). eta: 0 takes 0.01.

    v starts at epsilon squared, and nothing is corrected for the start, as in the paper (FedAdam).

    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(3, dtype=np.float32), step=aq.Adam(eta=0.03))
    """

    eta: float = 0.0
    beta: float = 0.9
    beta2: float = 0.99
    epsilon: float = 0.001
    name: ClassVar[str] = "adam"
    reference: ClassVar[str] = "Reddi et al. 2021, FedAdam"

    def __post_init__(self) -> None:
        _check(eta=self.eta, beta=self.beta, beta2=self.beta2)
        if not self.epsilon > 0:
            raise ConfigError(f"epsilon = {self.epsilon!r}: it must be above 0.")

    def init(self, dimension: int) -> dict[str, Any]:
        start = np.full(dimension, self.epsilon**2, dtype=np.float32)
        return {"m": np.zeros(dimension, dtype=np.float32), "v": start}

    def apply(self, update: Vector, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
        m = np.float32(self.beta) * state["m"] + np.float32(1 - self.beta) * update
        v = np.float32(self.beta2) * state["v"] + np.float32(1 - self.beta2) * (update * update)
        return np.float32(self.eta or 0.01) * m / (np.sqrt(v) + np.float32(self.epsilon)), {"m": m, "v": v}


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


def combined(step: ServerStep, updates: Updates) -> Combined:
    """What `step.combine` makes of the updates, checked: a step may be the user's own."""
    made: Any = called(f"The server step {step.name!r}", step.combine, updates)
    sizes = updates.layout.dimension, updates.layout.buffers
    shapes = [getattr(getattr(made, name, None), "shape", None) for name in ("update", "buffers")]
    if not isinstance(made, Combined) or shapes != [(size,) for size in sizes]:
        expected = f"a Combined such as updates.sum(), with {sizes[0]:,} elements in update and {sizes[1]:,} in buffers"
        raise ConfigError(returned(step.combine, made, expected))
    return made


def moved(step: ServerStep, combined: Combined, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
    """What `step.apply` makes of the combined update, checked likewise."""
    usable = all_finite(combined.update)
    match called(f"The server step {step.name!r}", step.apply, combined.update, state):
        case (np.ndarray() as update, dict() as after) if (
            update.shape == combined.update.shape and update.dtype.kind == "f"
        ):
            if usable and not all_finite(update):
                raise Diverged(returned(step.apply, update, "finite numbers for finite ones", "NaN or infinity: "))
            return update.astype(np.float32, copy=False), after
        case made:
            raise ConfigError(returned(step.apply, made, "what is added to the model, an array, and the state, a dict"))


def _check(**settings: float) -> None:
    for key, value in settings.items():
        if not value >= 0:
            raise ConfigError(f"{key} = {value!r}: it must be at least 0.")
        if key != "eta" and not value < 1:
            raise ConfigError(f"{key} = {value!r}: it must be at least 0 and below 1.")


def _middle(values: AnyArray, trimmed: int) -> AnyArray:
    """The mean of each column without its `trimmed` largest and smallest values."""
    ordered = np.sort(values, axis=0)[trimmed : len(values) - trimmed]
    middle: AnyArray = ordered[0] if len(ordered) == 1 else ordered.mean(axis=0, dtype=np.float64)
    return middle


STEPS: Registry[type[ServerStep]] = Registry(
    "server step",
    "adaquantfl.steps",
    lambda: (Sum, Momentum, Nesterov, Adam, Median, TrimmedMean, Krum),
    named_class(ServerStep, ConfigError),
    ConfigError,
)
