"""Orders on their way: what each client is asked, and the parcel that brings it to the present model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .messages import Order
from .state import ServerState


@dataclass(frozen=True)
class Parcel:
    """The end of an order. layout: of the model, where a client may not know it. data: what leads to the model."""

    layout: str
    data: bytes

    def packed(self, order: Order) -> bytes:
        """The whole order."""
        return replace(order, layout=self.layout, parcel=self.data).pack()

    def size(self, order: Order) -> int:
        """Bytes of the whole order."""
        return len(replace(order, layout=self.layout).head(len(self.data))) + len(self.data)


class Orders(Mapping[int, bytes]):
    """A round's orders by client. Each is put together when it is asked for, from one copy of the model's bytes."""

    def __init__(self, orders: Mapping[int, Order], parcels: Mapping[int, Parcel]) -> None:
        self._orders, self._parcels = orders, parcels

    def __getitem__(self, client: int) -> bytes:
        return self._parcels[client].packed(self._orders[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self._parcels)

    def __len__(self) -> int:
        return len(self._parcels)


class Parcels:
    """The parcels that lead to the present model, each made once for all clients that hold the same one."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int | None], Parcel] = {}

    def clear(self) -> None:
        """Let go of them: the round is over."""
        self._made.clear()

    def of(self, state: ServerState, held: int | None) -> Parcel:
        """held: the round of the client's model."""
        key = state.log.round, held
        if key not in self._made:
            if self._made and next(iter(self._made))[0] != state.log.round:
                self._made.clear()
            layout = state.layout.to_json() if held is None else ""
            self._made[key] = Parcel(layout, state.log.parcel(held, state.trajectory.model))
        return self._made[key]
