"""A run of the wrapped strategy's `start` with our steps instead of its own. A resumed run counts its rounds on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.serverapp.strategy import Strategy


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
