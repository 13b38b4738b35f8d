"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..protocol.server import Server
from ..threads import cores
from ..training.own_files import IN_MEMORY
from ..training.settings import Settings
from .base import Engine
from .calls import Call
from .kept import IN_MEMORY_BYTES, VECTORS_PER_CLIENT, Kept
from .pool import Crew


class LocalEngine(Engine):
    """Plays the clients of a configuration; see `Engine`.

    The model is handed to the clients in memory; what an order would bring over a network is counted, not carried.
    crew: whose workers to use; they stay when the engine is closed. None: workers of its own.
    """

    name: ClassVar[str] = "local"

    def __init__(self, config: Settings, crew: Crew | None = None) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        if config.task.startswith(IN_MEMORY):
            self.workers = 1  # no other process has the function
        self._crew = crew or Crew()
        self._stays = crew is not None
        self._pool = self._crew.pool(config, self.workers) if self.workers > 1 else None
        dimension = sum(array.size for array in self.player.trainer.weights().values())
        most = 4 * dimension * VECTORS_PER_CLIENT * config.clients
        self.states_at_hand = self._pool is None or most <= IN_MEMORY_BYTES  # workers would send them every round

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        if self._pool is not None:
            yield from self._pool.map(server, calls)
            return
        self.player.hold(server.held)
        for place, call in enumerate(calls):
            yield place, self.player.answer(call.ordered(server, server.digest))

    def keep_in(self, folder: Path) -> None:
        self.player.kept.folder = folder
        if self._pool is not None:
            self._pool.keep_in(folder)

    def client_states(self) -> dict[str, Any]:
        if self._pool is None:
            return {str(number): state for number, state in self.player.states().items()}
        kept = Kept(self.player.kept.folder)
        return {str(number): kept.put(number, state) for number, state in self._pool.states()}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        if self._pool is not None:
            self._pool.restore({int(number): state for number, state in states.items()})
            return
        for number, state in states.items():
            self.player.restore(int(number), state)

    def close(self) -> None:
        if not self._stays:
            self._crew.close()
        self._pool = None
