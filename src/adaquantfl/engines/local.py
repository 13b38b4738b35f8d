"""The local engine: all clients on this machine, in this process or in a few worker processes of one thread each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..protocol.messages import Model, Vector
from ..protocol.quorum import reason_of
from ..runs.config import Config
from ..threads import cores
from .calls import Call, CallEngine, Failure, perform
from .pool import Pool


class LocalEngine(CallEngine):
    """Plays the clients of a configuration; see `Engine`."""

    name = "local"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        if config.feedback:
            self.workers = 1  # a client's remainder stays with the process that plays it
        self._pool: Pool | None = None
        if self.workers > 1:
            self._pool = Pool(config, self.workers, self.federation.model)

    def carry(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        if self._pool is not None:
            yield from self._pool.map(model, calls)
            return
        for call in calls:
            try:
                yield perform(self.trainer, call, model)
            except Exception as error:  # a client's code is the user's; whatever it raises concerns that client
                yield Failure(reason_of(error))

    def kept(self) -> dict[int, Vector]:
        return dict(self.trainer.remainders)

    def restore(self, kept: Mapping[int, Vector]) -> None:
        self.trainer.remainders = dict(kept)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
