"""The server step: how the clients' updates move the model. The paper's is their weighted sum (eq. 3).

A step has two parts. `combine` makes one update of the clients' updates; by default their weighted sum. `apply` says
what is added to the model, such as momentum; by default that update. What `apply` keeps is part of the state that a
rule can roll back. A step of your own is a subclass of `ServerStep` with a name and one part or both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError, Diverged, called, place_of
from ..open_registry import Registry, named_class
from ..quantizers.vectors import all_finite
from .arrays import Vector
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


def combined(step: ServerStep, updates: Updates) -> Combined:
    """What `step.combine` makes of the updates, checked: a step may be the user's own."""
    made: Any = called(f"The server step {step.name!r}", step.combine, updates)
    where = f"The server step {step.name!r}: combine{place_of(step.combine)} returned"
    if not isinstance(made, Combined):
        expected = "expected a Combined such as updates.sum() or updates.by_element(...)"
        raise ConfigError(f"{where} {type(made).__name__}, {expected}.")
    for name, size in (("update", updates.layout.dimension), ("buffers", updates.layout.buffers)):
        found = getattr(made, name)
        if not isinstance(found, np.ndarray) or found.shape != (size,):
            shown = f"shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
            raise ConfigError(f"{where} {name} of {shown}, expected an array of shape ({size:,},).")
    return made


def moved(step: ServerStep, combined: Combined, state: dict[str, Any]) -> tuple[Vector, dict[str, Any]]:
    """What `step.apply` makes of the combined update, checked likewise."""
    found: Any = called(f"The server step {step.name!r}", step.apply, combined.update, state)
    where = f"The server step {step.name!r}: apply{place_of(step.apply)} returned"
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        shown = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
        raise ConfigError(f"{where} {shown}, expected what is added to the model and the state: (vector, dictionary).")
    update = found[0]
    if not (isinstance(update, np.ndarray) and update.shape == combined.update.shape and update.dtype.kind == "f"):
        shown = f"{update.dtype} of shape {update.shape}" if isinstance(update, np.ndarray) else type(update).__name__
        raise ConfigError(f"{where} {shown}, expected a float array of shape {combined.update.shape}.")
    if all_finite(combined.update) and not all_finite(update):
        raise Diverged(f"{where} NaN or infinity for an update that is finite.")
    return update.astype(np.float32, copy=False), found[1]


@dataclass(frozen=True)
class Sum(ServerStep):
    """w_{k+1} = w_k + sum of p_i Q(update_i), nothing added (eq. 3)."""

    name: ClassVar[str] = "sum"
    reference: ClassVar[str] = "the paper"
    is_sum: ClassVar[bool] = True


def _built_in() -> Iterable[type[ServerStep]]:
    from .optimizers import Adam, Momentum, Nesterov, Yogi  # they are made from this file's class
    from .robust import Krum, Median, TrimmedMean

    return Sum, Momentum, Nesterov, Adam, Yogi, Median, TrimmedMean, Krum


STEPS: Registry[type[ServerStep]] = Registry(
    "server step", "adaquantfl.steps", _built_in, named_class(ServerStep, ConfigError), ConfigError
)
