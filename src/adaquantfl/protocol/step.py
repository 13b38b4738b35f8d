"""The server step: how the sum of the clients' updates moves the model. The paper's is the sum itself (eq. 3).

A step of your own, such as momentum, is a subclass of `ServerStep` with a name, `apply` and, where it keeps something,
`init`. What it keeps is part of the state that a rule can roll back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import ConfigError
from ..open_registry import Registry, named_class
from .arrays import Vector


@dataclass(frozen=True)
class ServerStep(ABC):
    """How the model moves. name: by which a written-down state finds the class again."""

    name: ClassVar[str] = ""
    is_sum: ClassVar[bool] = False  # whether it is the plain sum: then a client can add the round's frames up itself

    def init(self, dimension: int) -> dict[str, Any]:
        """What the step keeps from round to round: arrays and numbers by name."""
        return {}

    @abstractmethod
    def apply(self, update: Vector, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
        """What is added to the model, given the weighted sum of the updates; and the state after it."""


@dataclass(frozen=True)
class Sum(ServerStep):
    """w_{k+1} = w_k + sum of p_i Q(update_i), nothing added (eq. 3)."""

    name: ClassVar[str] = "sum"
    is_sum: ClassVar[bool] = True

    def apply(self, update: Vector, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
        return update, state


STEPS: Registry[type[ServerStep]] = Registry(
    "server step", "adaquantfl.steps", lambda: (Sum,), named_class(ServerStep, ConfigError), ConfigError
)
