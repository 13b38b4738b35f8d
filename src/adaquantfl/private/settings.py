"""What keeps updates private: a mode is a dataclass, and its fields are the keys of the table [private]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ConfigError
from ..open_registry import Registry, named_class
from ..rules import FullPrecision

if TYPE_CHECKING:
    from ..protocol.stages import Stages


_RANGES = {
    "bits": (1 / 64, 32),
    "dropouts": (0, 0.7),
    "colluding": (0, 0.5),
    "noise": (1e-3, 1e3),
    "clip": (1e-6, 1e6),
    "epsilon": (1e-6, 1e6),
    "delta": (1e-15, 0.1),
}


@dataclass(frozen=True)
class Private:
    """A mode. name: by which a configuration finds it. masks: whether the server sees sums only."""

    name: ClassVar[str] = ""
    masks: ClassVar[bool] = True


@dataclass(frozen=True)
class Off(Private):
    """The server sees every update."""

    name: ClassVar[str] = "off"
    masks: ClassVar[bool] = False


@dataclass(frozen=True)
class Masked(Private):
    """Secure aggregation: the server learns the sum of the updates, and no update.

    Attributes:
        bits: per element of the model that a client's masked numbers take. Below ceil(log2(2 s n + 1)), which is 8 for
            100 clients, each round sends a share of the rotated coordinates, the same for all clients.
        dropouts: the share of a round's clients that may drop out at any steps.
        colluding: the share of clients that may tell the server all they know, without it learning an update.

    >>> Masked(bits=8.0)
    Masked(bits=8.0, dropouts=0.3, colluding=0.1)
    """

    bits: float = 1.0
    dropouts: float = 0.3
    colluding: float = 0.1
    name: ClassVar[str] = "masked"

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            least, most = _RANGES[key]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigError(f"private.{key} = {value!r}: expected a number from {least:g} to {most:g}.")

    def least(self, clients: int) -> int:
        """How many of a round's clients must be in the sum."""
        return clients - int(self.dropouts * clients)

    def honest(self, clients: int) -> int:
        """How many clients of the smallest sum do not collude."""
        return max(1, self.least(clients) - int(self.colluding * clients))


@dataclass(frozen=True)
class Noisy(Masked):
    """What all modes with noise have; see `Central`."""

    name: ClassVar[str] = ""
    noise: float = 1.0
    clip: float = 1.0
    epsilon: float = 8.0
    delta: float = 1e-5


@dataclass(frozen=True)
class Central(Noisy):
    """Secure aggregation, and Gaussian noise that the server adds to the sum: what it publishes is private.

    Attributes:
        bits: as in `Masked`.
        dropouts: as in `Masked`.
        colluding: as in `Masked`.
        noise: the multiplier: the deviation of the noise is this many times the longest update.
        clip: the largest l2 norm of an update; longer ones are scaled down to it.
        epsilon: the budget: no round is played that would spend more.
        delta: for which epsilon holds.

    >>> Central(noise=2.0, clip=0.5).least(100)
    70
    """

    name: ClassVar[str] = "central"


@dataclass(frozen=True)
class Distributed(Noisy):
    """Secure aggregation, and Skellam noise of which each client adds a part: what the server sees is private too.

    Attributes:
        bits: as in `Masked`.
        dropouts: as in `Masked`; the parts of the noise suffice even if that many drop out.
        colluding: as in `Masked`; they suffice without the parts of that many clients, who know their own.
        noise: as in `Central`.
        clip: as in `Central`.
        epsilon: as in `Central`.
        delta: as in `Central`.

    >>> Distributed(noise=2.0).epsilon
    8.0
    """

    name: ClassVar[str] = "distributed"


MODES: Registry[type[Private]] = Registry(
    "private mode",
    "adaquantfl.private",
    lambda: (Off, Masked, Central, Distributed),
    named_class(Private, ConfigError),
    ConfigError,
)


def mode(given: Any) -> Private:
    """A mode from its name, or the object itself; True is "masked"."""
    if isinstance(given, bool):
        given = "masked" if given else "off"
    if isinstance(given, str):
        return MODES.find(given)()
    if not isinstance(given, Private):
        names = ", ".join(MODES.names())
        raise ConfigError(f"private = {given!r}: expected one of {names}, or an object such as Masked().")
    return given


def check(private: Private, stages: Stages) -> Masked:
    """Refuse what needs single updates: ConfigError says why. Return the mode."""
    if not isinstance(private, Masked):
        raise ConfigError("private = 'off': use aq.Server, which sees every update.")
    if not isinstance(stages.rule, FullPrecision):
        raise ConfigError(
            f"rule = {stages.rule.name!r} does not go with private = {private.name!r}, whose own rule sees sums only: "
            "leave the rule out."
        )
    if not stages.step.averages:
        raise ConfigError(
            f"step = {stages.step.name!r} compares the clients' updates with each other, and with private = "
            f"{private.name!r} nobody sees one: use 'sum', or a server optimizer such as 'adam'."
        )
    if stages.max_update_norm or stages.max_examples:
        raise ConfigError(f"With private = {private.name!r}, max_update_norm and max_examples have nothing to look at.")
    if stages.undo and isinstance(private, Noisy):
        raise ConfigError(
            f"undo looks at the clients' losses, which private = {private.name!r} does not let them tell."
        )
    return private
