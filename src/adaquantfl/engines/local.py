"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..protocol.server import Server
from ..threads import cores
from ..training.settings import Settings
from .base import Engine
from .calls import Call, Failure
from .pool import Pool


class LocalEngine(Engine):
    """Plays the clients of a configuration; see `Engine`.

    The model is handed to the clients in memory; what an order would bring over a network is counted, not carried.
    """

    name: ClassVar[str] = "local"

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        self._pool = Pool(config, self.workers) if self.workers > 1 else None

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        if self._pool is not None:
            yield from self._pool.map(server, calls, self.player)
            return
        self.player.hold(server.held)
        for place, call in enumerate(calls):
            yield place, self.player.answer(call.ordered(server, server.digest))

    def measure(self, server: Server, calls: list[Call]) -> list[float]:
        if self._pool is None:
            return super().measure(server, calls)
        answers = [answer for _, answer in sorted(self._pool.map(server, calls, self.player))]
        if any(isinstance(answer, Failure) for answer in answers):  # a worker died
            return super().measure(server, calls)
        return answers

    def client_states(self) -> dict[str, Any]:
        return {str(number): state for number, state in self.player.states().items()}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        for number, state in states.items():
            self.player.restore(int(number), state)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None
