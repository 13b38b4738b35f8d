"""The strategy that ours wraps: what it is, and its `start` with our steps instead of its own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from ..errors import ConfigError

CLIENT_SIDE = (
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
)
WRAPPERS = (
    *CLIENT_SIDE,
    flower.DifferentialPrivacyServerSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
)
_NO_MEANS = (  # although made from FedAvg
    flower.FedMedian, flower.FedTrimmedAvg, flower.MultiKrum, flower.Bulyan, flower.FedXgbBagging, flower.FedXgbCyclic,
)  # fmt: skip


def averages(strategy: object) -> bool | None:
    """Whether the new model is a mean over the clients, as `aq.Server` takes it: None for FedAvg, the plain mean.

    It is one where the strategy is made from FedAvg, and none of those that take a median or choose among the clients.
    Wrappers for differential privacy, which may add noise, count as made from what they wrap.

    >>> from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian
    >>> averages(FedAvg()), averages(FedAdam()), averages(FedMedian())
    (None, True, False)
    """
    if type(strategy) is flower.FedAvg:
        return None
    if isinstance(strategy, WRAPPERS):
        return averages(strategy.strategy) is not False
    return isinstance(strategy, flower.FedAvg) and not isinstance(strategy, _NO_MEANS)


def chain(strategy: object) -> Iterator[object]:
    """A strategy, the one that it wraps, and so on."""
    while isinstance(strategy, Strategy):
        yield strategy
        strategy = vars(strategy).get("strategy")


def clipping_norm(strategy: Strategy) -> float | None:
    """The norm to which the clients clip now; None where no wrapper asks them to."""
    norms = [float(one.clipping_norm) for one in chain(strategy) if isinstance(one, CLIENT_SIDE)]
    return min(norms, default=None)


def refuse_outer(strategy: Strategy) -> None:
    """ConfigError where a wrapper for differential privacy is around this strategy: it would see quantized replies.

    Flower does not tell a strategy who wraps it, so that the callers are looked through.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, WRAPPERS) and any(one is strategy for one in chain(caller)):
            name = type(caller).__name__
            raise ConfigError(
                f"{name} is around AdaQuantStrategy, where it cannot clip: replies are quantized there. Put it inside: "
                f"AdaQuantStrategy({name}(FedAvg(), ...))."
            )
        frame = frame.f_back


def by_name(start: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What `start` is called with, by name, whatever the order; all of its arguments can be given by name."""
    places = [*inspect.signature(start).parameters.values()]
    if any(place.kind is place.VAR_POSITIONAL for place in places):  # it hands on what Flower's own takes
        places = [*inspect.signature(Strategy.start).parameters.values()][1:]
    names = [place.name for place in places if place.kind is not place.VAR_KEYWORD]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def later(step: Callable[..., Any], rounds: int) -> Callable[..., Any]:
    """A step that is told the number of the round after this many earlier ones."""
    return lambda server_round, *args, **kwargs: step(server_round + rounds, *args, **kwargs)


@contextmanager
def in_place_of(strategy: Strategy, steps: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Let a strategy call these instead of its own methods."""
    attributes = vars(strategy)
    before = {name: attributes[name] for name in steps if name in attributes}
    attributes.update(steps)
    try:
        yield
    finally:
        for name in steps:
            del attributes[name]
        attributes.update(before)
