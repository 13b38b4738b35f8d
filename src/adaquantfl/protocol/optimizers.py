"""Server steps with a memory: the round's update is a gradient to them, and they move the model as an optimizer would.

Hsu, Qi, Brown 2019 (momentum, FedAvgM); Douillard et al. 2023 (Nesterov, as in DiLoCo); Reddi et al. 2021 (Adam, Yogi).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError
from .arrays import Vector
from .step import ServerStep


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
        v = self._second_moment(state["v"], update * update)
        return np.float32(self.eta or 0.01) * m / (np.sqrt(v) + np.float32(self.epsilon)), {"m": m, "v": v}

    def _second_moment(self, v: Vector, square: Vector) -> Vector:
        mixed: Vector = np.float32(self.beta2) * v + np.float32(1 - self.beta2) * square
        return mixed


@dataclass(frozen=True)
class Yogi(Adam):
    """As Adam, but v changes by the square itself, so that it never falls fast (FedYogi).

    >>> import adaquantfl as aq
    >>> server = aq.Server(np.zeros(3, dtype=np.float32), step=aq.Yogi(eta=0.03))
    """

    name: ClassVar[str] = "yogi"
    reference: ClassVar[str] = "Reddi et al. 2021, FedYogi"

    def _second_moment(self, v: Vector, square: Vector) -> Vector:
        moved: Vector = v - np.float32(1 - self.beta2) * square * np.sign(v - square)
        return moved


def _check(**settings: float) -> None:
    for key, value in settings.items():
        if not value >= 0:
            raise ConfigError(f"{key} = {value!r}: it must be at least 0.")
        if key != "eta" and not value < 1:
            raise ConfigError(f"{key} = {value!r}: it must be at least 0 and below 1.")
