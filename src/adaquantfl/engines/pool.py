"""Worker processes that share the model in memory and answer calls; replies come back in the order of the calls.

A worker that dies, or takes longer than the round's timeout over one call, fails that call and is replaced.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import EngineError
from ..protocol.messages import Model
from ..protocol.quorum import reason_of
from ..runs.config import Config
from .calls import Call, Failure, perform

_AHEAD = 2  # calls a worker may be ahead of the oldest reply: bounds the replies held back for their order


class Pool:
    """`workers` processes, each with a Trainer of its own."""

    def __init__(self, config: Config, workers: int, model: Model) -> None:
        self._weights, self._buffers = len(model.weights), len(model.buffers)
        self._memory = SharedMemory(create=True, size=4 * (self._weights + self._buffers))
        self._shared = _view(self._memory, self._weights, self._buffers)
        self._config = config
        # spawn: a forked copy of a process with PyTorch's threads can hang, and would keep our pipe ends open.
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[Connection, BaseProcess] = {}
        self._proven: set[Connection] = set()  # workers that have answered
        for _ in range(workers):
            self._start_worker()

    def map(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        """The results of all calls on this model, or `Failure`s, in order."""
        self._shared.weights[:] = model.weights
        self._shared.buffers[:] = model.buffers
        idle, busy = list(self._workers), dict[Connection, tuple[int, float]]()
        finished: dict[int, Any] = {}
        sent = yielded = 0
        try:
            while yielded < len(calls):
                while idle and sent < len(calls) and sent < yielded + _AHEAD * len(self._workers):
                    connection = idle.pop(0)
                    busy[connection] = sent, time.monotonic() + self._config.round_timeout
                    self._send(connection, calls[sent])
                    sent += 1
                if yielded in finished:  # after the next calls are handed out: nobody waits for the caller
                    yield finished.pop(yielded)
                    yielded += 1
                    continue
                soonest = min(deadline for _, deadline in busy.values())
                for ready in wait(list(busy), timeout=max(0.0, soonest - time.monotonic())):
                    assert isinstance(ready, Connection)
                    number, _ = busy.pop(ready)
                    finished[number], connection = self._receive(ready)
                    idle.append(connection)
                for late in [c for c, (_, deadline) in busy.items() if deadline <= time.monotonic()]:
                    number, _ = busy.pop(late)
                    finished[number] = Failure(f"no answer within round_timeout = {self._config.round_timeout:g} s.")
                    idle.append(self._replace(late))
        except GeneratorExit:  # the caller wants no more: the answers still to come must not meet the next question
            for connection in self._workers.keys() & busy:  # none are left of a pool that is closed
                self._receive(connection)
            raise

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
        del self._shared
        self._memory.close()
        self._memory.unlink()

    def _start_worker(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve,
            args=(theirs, self._config, self._memory.name, self._weights, self._buffers),
            name=f"adaquantfl-worker-{len(self._workers)}",
            daemon=True,
        )
        process.start()
        theirs.close()  # so that a worker's death ends the pipe
        self._workers[ours] = process
        return ours

    def _replace(self, connection: Connection) -> Connection:
        process = self._workers.pop(connection)
        process.kill()
        process.join()
        connection.close()
        return self._start_worker()

    def _send(self, connection: Connection, call: Call) -> None:
        with suppress(OSError):  # a dead worker: receiving from it says so
            connection.send(call)

    def _receive(self, connection: Connection) -> tuple[Any, Connection]:
        """The answer, and the connection to a worker that is free now: this one, or one in a dead one's place."""
        try:
            answer = connection.recv()
            self._proven.add(connection)
            return answer, connection
        except (EOFError, OSError):
            return self._lost(connection), self._replace(connection)

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


def _serve(connection: Connection, config: Config, memory: str, weights: int, buffers: int) -> None:
    """A worker's life: answer calls until the other end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    import torch

    from ..threads import set_threads
    from ..training.task import Task
    from ..training.trainer import Trainer

    torch.set_num_threads(1)
    set_threads(1)
    block = SharedMemory(name=memory)
    model = _view(block, weights, buffers)
    trainer: Trainer | None = None
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            break
        answer: Any
        try:
            trainer = trainer or Trainer(config, Task.of(config))
            answer = perform(trainer, call, model)
        except Exception as error:  # whatever it was, the parent must hear of it
            answer = Failure(reason_of(error))
        try:
            connection.send(answer)
        except OSError:
            break
    del model
    block.close()


def _view(memory: SharedMemory, weights: int, buffers: int) -> Model:
    everything: npt.NDArray[np.float32] = np.ndarray(weights + buffers, dtype=np.float32, buffer=memory.buf)
    return Model(everything[:weights], everything[weights:])
