"""Worker processes that share the model in memory and answer calls.

A worker that dies, or takes longer than the round's timeout over one call, fails that call and is replaced. In rounds
with several messages each client is always played by the same worker.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import torch

from ..errors import EngineError, reason_of
from ..protocol.arrays import Model, Vector
from ..protocol.parcels import Held
from ..protocol.server import Server
from ..threads import set_threads
from ..training.settings import Settings
from ..training.task import Task
from ..training.trainer import Trainer
from .calls import Call, Failure, Player


class Pool:
    """`workers` processes, each with a player of its own."""

    def __init__(self, config: Settings, workers: int) -> None:
        self._memory: SharedMemory | None = None
        self._config = config
        # spawn: a forked copy of a process with PyTorch's threads can hang, and would keep our pipe ends open.
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[Connection, BaseProcess] = {}
        self._places: dict[Connection, int] = {}  # each worker's number: it plays the clients of that remainder
        self._proven: set[Connection] = set()  # workers that have answered
        # Worker -> the place of its call, and until when it may take.
        self._busy: dict[Connection, tuple[int, float]] = {}
        for place in range(workers):
            self._start_worker(place)

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    def map(self, server: Server, calls: list[Call], player: Player) -> Iterator[tuple[int, Any]]:
        """The answers to all calls, which are about the server's model, as they come: (place in calls, answer).

        player: has what clients keep from round to round. It travels with their calls, and back with the answers.
        """
        light = self._share(server.held)
        at_home = server.clients_keep
        homes = dict(enumerate(call.client % self.size if at_home and call.name == "train" else -1 for call in calls))
        states = player.states() if at_home else {}
        waiting = {place: call.ordered(server, server.digest) for place, call in enumerate(calls)}
        self._busy = busy = dict[Connection, tuple[int, float]]()
        while waiting or busy:
            self._hand_out(light, waiting, homes, states)
            soonest = min(deadline for _, deadline in busy.values())
            finished = []
            for ready in wait(list(busy), timeout=max(0.0, soonest - time.monotonic())):
                assert isinstance(ready, Connection)
                place, _ = busy.pop(ready)
                answer, state = self._receive(ready)
                if state is not None:
                    player.restore(calls[place].client, state)
                finished.append((place, answer))
            for late in [c for c, (_, deadline) in busy.items() if deadline <= time.monotonic()]:
                place, _ = busy.pop(late)
                reason = f"no answer within round_timeout = {self._config.round_timeout:g} s."
                self._replace(late)
                finished.append((place, Failure(reason)))
            self._hand_out(light, waiting, homes, states)  # before the caller has a turn: nobody waits for it
            yield from finished

    def close(self) -> None:
        """End the workers and free the shared memory."""
        for connection in self._workers:
            connection.close()
        for process in self._workers.values():
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)
        self._workers = {}
        if self._memory is not None:
            self._memory.close()
            self._memory.unlink()
            self._memory = None

    def _share(self, held: Held) -> Held:
        """Put the model's vectors into shared memory; the rest of it travels with each call."""
        weights, buffers = held.model.weights, held.model.buffers
        if self._memory is None:
            self._memory = SharedMemory(create=True, size=4 * (len(weights) + len(buffers)))
        shared = _view(self._memory, len(weights), len(buffers))
        shared[0][:], shared[1][:] = weights, buffers
        nothing = np.empty(0, dtype=np.float32)
        return replace(held, model=Model(nothing, nothing, held.model.others))

    def _hand_out(
        self, light: Held, waiting: dict[int, Call], homes: Mapping[int, int], states: Mapping[int, dict[str, Any]]
    ) -> None:
        """Give each idle worker the first call that it may answer. homes: the worker of each call; -1: anyone."""
        assert self._memory is not None
        for connection in [worker for worker in self._workers if worker not in self._busy]:
            mine = (place for place in waiting if homes[place] in (-1, self._places[connection]))
            if (place := next(mine, None)) is not None:
                self._busy[connection] = place, time.monotonic() + self._config.round_timeout
                with suppress(OSError):  # a dead worker: receiving from it says so
                    call, keeps = waiting.pop(place), homes[place] >= 0
                    connection.send((self._memory.name, light, call, keeps, states.get(call.client) if keeps else None))

    def _start_worker(self, place: int) -> None:
        ours, theirs = self._context.Pipe()
        name = f"adaquantfl-worker-{place}"
        process = self._context.Process(target=_serve, args=(theirs, self._config), name=name, daemon=True)
        process.start()
        theirs.close()  # so that a worker's death ends the pipe
        self._workers[ours], self._places[ours] = process, place

    def _replace(self, connection: Connection) -> None:
        process = self._workers.pop(connection)
        process.kill()
        process.join()
        connection.close()
        self._start_worker(self._places.pop(connection))

    def _receive(self, connection: Connection) -> tuple[Any, dict[str, Any] | None]:
        """The answer, and the client's new state; where the worker is dead, another one takes its place."""
        try:
            answer, state = connection.recv()
            self._proven.add(connection)
        except (EOFError, OSError):
            answer, state = self._lost(connection), None
            self._replace(connection)
        return answer, state

    def _lost(self, connection: Connection) -> Failure:
        process = self._workers[connection]
        process.join(timeout=5)
        code = process.exitcode
        if connection not in self._proven and code is not None and code > 0:
            raise EngineError(
                f"A worker process could not start (exit code {code}); what it wrote is above. A script of your own "
                'must call this under `if __name__ == "__main__":`, since workers import it.'
            )
        reason = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return Failure(
            f"its worker ended in mid-round ({reason}); out of memory is the usual cause. "
            "Fewer workers need less memory: --set workers=1."
        )


def _serve(connection: Connection, config: Settings) -> None:
    """A worker's life: answer calls until the other end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    torch.set_num_threads(1)
    set_threads(1)
    player: Player | None = None
    memory: SharedMemory | None = None
    with suppress(EOFError, OSError):
        while True:
            message = connection.recv()
            answer: Any
            try:
                player = player or _player(config)
                name, light, call, keeps, state = message
                memory = memory or SharedMemory(name=name)
                vectors = _view(memory, light.layout.dimension, light.layout.buffers)
                player.hold(replace(light, model=Model(*vectors, light.model.others)))
                if state is not None:
                    player.restore(call.client, state)
                answer = player.answer(call)
                state = None
                if keeps and call.client in player.clients:
                    state = player.state(call.client)
                    del player.clients[call.client]  # the parent has it from now on
                    player.kept.forget(call.client)
                del vectors
            except Exception as error:  # whatever it was, the parent must hear of it
                answer, state = Failure(reason_of(error)), None
            connection.send((answer, state))


def _player(config: Settings) -> Player:
    config.make_known()
    return Player(Trainer(config, Task.of(config)))


def _view(memory: SharedMemory, weights: int, buffers: int) -> tuple[Vector, Vector]:
    everything: Vector = np.ndarray(weights + buffers, dtype=np.float32, buffer=memory.buf)
    return everything[:weights], everything[weights:]
