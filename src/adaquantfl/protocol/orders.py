"""Orders on their way: what each client is asked, and the parcel that brings it to the present model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .messages import Order
from .state import ServerState


class Orders(Mapping[int, bytes]):
    """A round's orders by client. Each is put together when it is asked for, from one copy of the model's bytes."""

    def __init__(self, parts: Mapping[int, tuple[Order, bytes]]) -> None:
        self._parts = parts

    def __getitem__(self, client: int) -> bytes:
        order, parcel = self._parts[client]
        return replace(order, parcel=parcel).pack()

    def __iter__(self) -> Iterator[int]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class Parcels:
    """The parcels that lead to the present model, each made once for all clients that hold the same one."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int | None], bytes] = {}

    def add(self, order: Order, state: ServerState, held: int | None) -> tuple[Order, bytes]:
        """Return the order with the layout that it needs, and its parcel. held: the round of the client's model."""
        key = state.log.round, held
        if key not in self._made:
            if self._made and next(iter(self._made))[0] != state.log.round:
                self._made.clear()
            self._made[key] = state.log.parcel(held, state.trajectory.model)
        return replace(order, layout=state.layout.to_json() if held is None else ""), self._made[key]
