"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..protocol.messages import Order
from ..protocol.server import Server
from ..runs.config import Config
from ..threads import cores
from .base import Engine
from .calls import Call
from .pool import Crew


class LocalEngine(Engine):
    """Plays the clients of a configuration; see `Engine`.

    The model is handed to the clients in memory; what an order would bring over a network is counted, not carried.
    crew: whose workers to use; they stay when the engine is closed. None: workers of its own.
    """

    name: ClassVar[str] = "local"

    def __init__(self, config: Config, crew: Crew | None = None) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        if config.always_feedback:
            self.workers = 1  # a client's remainder stays with the process that plays it
        self._crew = crew or Crew()
        self._stays = crew is not None
        self._pool = self._crew.pool(config, self.workers) if self.workers > 1 else None

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        self.player.hold(server.held)
        if self._pool is not None and not self._stay_here(calls):
            yield from self._pool.map(server.held, calls)
            return
        for place, call in enumerate(calls):
            yield place, self.player.answer(call)

    def _stay_here(self, calls: list[Call]) -> bool:
        """Whether clients leave something out for later, or did: that stays with the process that plays them."""
        train = [call for call in calls if call.name == "train"]
        return bool(train) and (self.player.keeps or any(Order.unpack(call.order).feedback for call in train))

    def client_states(self) -> dict[str, Any]:
        if not self.config.feedback:
            return {}
        return {str(number): self.player.state(number) for number in self.player.clients if number >= 0}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        for number, state in states.items():
            self.player.restore(int(number), state)

    def close(self) -> None:
        if not self._stays:
            self._crew.close()
        self._pool = None
