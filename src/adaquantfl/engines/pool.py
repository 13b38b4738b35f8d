"""Worker processes that share the model in memory and answer calls; replies come back in the order of the calls."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..errors import AdaQuantError, EngineError
from ..federated.messages import Model

Call = tuple[str, tuple[Any, ...]]
_AHEAD = 2  # calls a worker may be ahead of the oldest reply: bounds the replies held back for their order


class Pool:
    """`workers` processes, each with a Trainer of its own."""

    def __init__(self, config: Config, workers: int, model: Model) -> None:
        self._weights, self._buffers = len(model.weights), len(model.buffers)
        self._memory = SharedMemory(create=True, size=4 * (self._weights + self._buffers))
        self._shared = _view(self._memory, self._weights, self._buffers)
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        # spawn: a forked copy of a process with PyTorch's threads can hang, and would keep our pipe ends open.
        context = multiprocessing.get_context("spawn")
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(theirs, config, self._memory.name, self._weights, self._buffers),
                name=f"adaquantfl-worker-{number}",
                daemon=True,
            )
            process.start()
            theirs.close()  # so that a worker's death ends the pipe
            self._connections.append(ours)
            self._processes.append(process)

    def map(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        """The results of all calls on this model, in order."""
        self._shared.weights[:] = model.weights
        self._shared.buffers[:] = model.buffers
        idle, busy = list(self._connections), dict[Connection, int]()
        finished: dict[int, Any] = {}
        sent = yielded = 0
        try:
            while yielded < len(calls):
                while idle and sent < len(calls) and sent < yielded + _AHEAD * len(self._connections):
                    connection = idle.pop(0)
                    self._send(connection, calls[sent])
                    busy[connection] = sent
                    sent += 1
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    finished[busy.pop(ready)] = self._receive(ready)
                    idle.append(ready)
                while yielded in finished:
                    yield finished.pop(yielded)
                    yielded += 1
        except GeneratorExit:  # the caller wants no more: the answers still to come must not meet the next question
            for connection in busy:
                self._receive(connection)
            raise

    def close(self) -> None:
        """End the workers and free the shared memory."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(timeout=2)
            if process.is_alive():
                process.terminate()
                process.join(timeout=5)
        self._connections, self._processes = [], []
        del self._shared
        self._memory.close()
        self._memory.unlink()

    def _send(self, connection: Connection, call: Call) -> None:
        try:
            connection.send(call)
        except OSError as error:
            raise self._lost(connection) from error

    def _receive(self, connection: Connection) -> Any:
        try:
            outcome, value = connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(connection) from error
        if outcome == "result":
            return value
        raise value

    def _lost(self, connection: Connection) -> EngineError:
        process = self._processes[self._connections.index(connection)]
        process.join(timeout=5)
        code = process.exitcode
        reason = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return EngineError(
            f"{process.name} ended in mid-round ({reason}); out of memory is the usual cause. "
            "Fewer workers need less memory: --set workers=1."
        )


def _serve(connection: Connection, config: Config, memory: str, weights: int, buffers: int) -> None:
    """A worker's life: answer calls until the other end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    import torch

    from ..federated.client import Trainer
    from ..tasks.task import Task
    from ..threads import set_threads
    from .local import perform

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
        try:
            trainer = trainer or Trainer(config, Task.of(config))
            answer = ("result", perform(trainer, call, model))
        except AdaQuantError as error:
            answer = ("error", error)
        except Exception:  # whatever it was, the parent must hear of it
            answer = ("error", EngineError(f"A worker failed:\n{traceback.format_exc()}"))
        try:
            connection.send(answer)
        except OSError:
            break
    del model
    block.close()


def _view(memory: SharedMemory, weights: int, buffers: int) -> Model:
    everything: npt.NDArray[np.float32] = np.ndarray(weights + buffers, dtype=np.float32, buffer=memory.buf)
    return Model(everything[:weights], everything[weights:])
