"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..protocol.client import Client
from ..protocol.server import Server
from ..runs.config import Config
from ..threads import cores
from .base import Engine
from .calls import Call
from .pool import Pool


class LocalEngine(Engine):
    """Plays the clients of a configuration; see `Engine`.

    The model is handed to the clients in memory; what an order would bring over a network is counted, not carried.
    """

    name: ClassVar[str] = "local"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        if config.feedback:
            self.workers = 1  # a client's remainder stays with the process that plays it
        self._pool = Pool(config, self.workers) if self.workers > 1 else None

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        self.player.hold(server.held)
        if self._pool is not None:
            yield from self._pool.map(server.held, calls)
            return
        for place, call in enumerate(calls):
            yield place, self.player.answer(call)

    def client_states(self) -> dict[str, Any]:
        if not self.config.feedback:
            return {}
        clients = {number: client for number, client in self.player.clients.items() if number >= 0}  # -1 evaluates
        # Without the model: it is the server's.
        return {str(number): {**client.state(), "held": None} for number, client in clients.items()}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        models = self.player.models
        self.player.clients = {int(number): Client.restore(state, models) for number, state in states.items()}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
