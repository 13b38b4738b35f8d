"""A run of the wrapped strategy's `start` with our steps instead of its own. A resumed run counts its rounds on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.serverapp.strategy import Strategy


class Arguments:
    """What `start` is called with, by name, whatever the order."""

    def __init__(self, start: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._names = list(inspect.signature(start).parameters)
        self.args, self.kwargs = list(args), dict(kwargs)

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default where it was not given."""
        place = self._place(name)
        return self.args[place] if place is not None else self.kwargs.get(name, default)

    def replace(self, name: str, value: Any) -> None:
        """Replace the value of an argument that was given."""
        place = self._place(name)
        if place is not None:
            self.args[place] = value
        else:
            self.kwargs[name] = value

    def _place(self, name: str) -> int | None:
        place = self._names.index(name) if name in self._names else len(self.args)
        return place if place < len(self.args) else None


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
