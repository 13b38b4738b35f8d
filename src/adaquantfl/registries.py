"""Open registries: names for things that the package brings, and that other packages bring by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from .errors import AdaQuantError
from .names import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name. Another package adds one by an entry point of the group `adaquantfl.KINDs`.

    >>> from adaquantfl.errors import ConfigError
    >>> shapes = Registry("shape", {"round": 1, "square": 2}, ConfigError)
    >>> shapes["square"], list(shapes)
    (2, ['round', 'square'])
    """

    def __init__(self, kind: str, own: Mapping[str, T], error: type[AdaQuantError]) -> None:
        self.kind, self._error = kind, error
        self._known: dict[str, T] = dict(own)

    def __getitem__(self, name: str) -> T:
        found = self._known.get(name) or self._outside.get(name)
        if found is None:
            raise self._error(unknown(self.kind, name, self))
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._outside

    def __iter__(self) -> Iterator[str]:
        return iter((*self._known, *self._outside))

    def items(self) -> Iterator[tuple[str, T]]:
        return ((name, self[name]) for name in self)

    def add(self, name: str, value: T) -> None:
        """Make one known in this process; an error where the name is taken by another."""
        if self._known.get(name, value) is not value:
            raise self._error(f"There is a {self.kind} named {name!r} already.")
        self._known[name] = value

    @cached_property
    def _outside(self) -> dict[str, T]:
        """What other packages bring; loaded when it is first looked for."""
        found: dict[str, T] = {}
        for point in entry_points(group=f"adaquantfl.{self.kind.replace(' ', '_')}s"):
            owner = point.dist.name if point.dist else point.value
            if point.name in self._known or point.name in found:
                raise self._error(f"The package {owner} brings a {self.kind} {point.name!r}, a name that is taken.")
            found[point.name] = point.load()
        return found
