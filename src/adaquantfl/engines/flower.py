"""Our runs in Flower's simulation: a ClientApp with `quantize_mod` that trains our tasks, and the engine that asks it.

Messages are those of `adaquantfl.flower`: the order travels in our record, the mod opens it and quantizes the update.
Flower's and Ray's public options keep Ray on this machine: docs/security.md says what they do not cover.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, ClassVar, cast

import torch
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp

from ..errors import EngineError, Refused, reason_of
from ..flower import quantize_mod
from ..flower.records import KEY, MOD_FAILED, NOTE, ORDER, array_record, arrays_in, needs_model, update_in
from ..flower.sending import partition_in, questions
from ..protocol.server import Server
from ..threads import cores, set_threads
from ..training.settings import Settings
from ..training.task import Task
from ..training.trainer import Trainer
from .base import Engine
from .calls import Call, Failure, Trained
from .launch import Observer, Request
from .own_file import settings_here

_START_SECONDS = 180.0  # for Ray and the first worker, which imports PyTorch
_POLL_SECONDS = 0.02
_END_SECONDS = 10.0  # for the simulation to end by itself
_REPLY_SECONDS = 10.0  # for a reply to travel, in addition to round_timeout
_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's coming default; without it Ray warns
    # Ray replaces 127.0.0.1 by an address that other hosts reach unless it is told that this is no cluster.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}
_WORKERS = "ADAQUANTFL_WORKERS"  # a folder with a file for each of Ray's workers, by its process
_ARRAYS, _CONFIG, _METRICS = "arrays", "config", "metrics"  # records, as Flower's own strategies name them


class FlowerEngine(Engine):
    """Plays the clients of a configuration as the nodes of a simulation; see `Engine`.

    The simulation runs in a thread of this process, with Ray's workers under it, until `close`. Its ServerApp hands
    over the grid, by which this class sends messages.
    """

    name: ClassVar[str] = "flower"

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.workers = min(config.workers or cores(), config.clients)
        self._run = json.dumps(config.for_clients())
        self._holds: dict[int, bytes] = {}  # client -> the digest of the model that it opened last
        self._grids: SimpleQueue[Grid] = SimpleQueue()
        self._ended, self._failure = Event(), ""
        self._folder = TemporaryDirectory(prefix="adaquantfl")
        os.environ[_WORKERS] = self._folder.name
        os.environ.update(_ENVIRONMENT)
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self._thread = Thread(target=self._simulate, name="adaquantfl-simulation", daemon=True)
        self._thread.start()
        try:
            self._grid = self._grids.get(timeout=_START_SECONDS)
            self._nodes = self._find_nodes()
        except BaseException as error:
            self.close()
            if isinstance(error, Empty):
                raise EngineError(f"Flower's simulation did not start. {self._failure}") from None
            raise

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        """Ask each client's node."""
        messages = {}
        for place, call in enumerate(calls):
            messages[self._nodes[call.client]] = place, self._message(server, call)
        seconds = (self.config.round_timeout + _REPLY_SECONDS) * math.ceil(len(messages) / self.workers)
        late = Failure(f"no answer within round_timeout = {self.config.round_timeout:g} s.")
        for node, reply in self._exchange([message for _, message in messages.values()], seconds):
            place, _ = messages.pop(node)
            answer = _answer(calls[place], reply)
            if not isinstance(answer, Failure) and server.stages.downlink.name != "model":
                self._holds[calls[place].client] = server.digest
            yield place, answer
        for place, _ in messages.values():
            yield place, late

    def close(self) -> None:
        self._ended.set()
        self._thread.join(_END_SECONDS)
        for worker in Path(self._folder.name).iterdir() if self._thread.is_alive() else ():  # busy with a client
            with suppress(ProcessLookupError):
                os.kill(int(worker.name), signal.SIGKILL)
        self._thread.join()
        self._folder.cleanup()

    def _simulate(self) -> None:
        """Run Flower's simulation until `close`, or note why it ended."""
        before, log = os.environ.get("PYTHONPATH"), logging.getLogger("flwr")
        level = log.level
        log.setLevel(logging.CRITICAL)  # it reports each error of a client with a traceback; ours are in the history
        try:
            from flwr.simulation import run_simulation

            ray: dict[str, Any] = {"num_cpus": self.workers, "include_dashboard": False, "log_to_driver": False}
            ray |= {"_node_ip_address": "127.0.0.1", "logging_level": logging.ERROR}
            resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
            server_app = ServerApp()
            server_app.main()(self._hand_over)
            config: Any = {"init_args": ray, "client_resources": resources}
            run_simulation(server_app, app, self.config.clients, backend_config=config)
        except BaseException as error:  # Flower also exits where Ray is missing
            self._failure = reason_of(error.__cause__ or error)  # type: ignore[arg-type]
        finally:
            self._ended.set()
            log.setLevel(level)
            if before is None:  # Flower's backend adds to it
                os.environ.pop("PYTHONPATH", None)
            else:
                os.environ["PYTHONPATH"] = before

    def _hand_over(self, grid: Grid, context: Context) -> None:
        self._grids.put(grid)
        self._ended.wait()

    def _find_nodes(self) -> dict[int, int]:
        """Client -> node: a node plays the client whose number is its partition."""
        deadline = time.monotonic() + _START_SECONDS
        while len(nodes := list(self._grid.get_node_ids())) < self.config.clients and time.monotonic() < deadline:
            self._check()
            time.sleep(_POLL_SECONDS)
        found = {partition_in(reply): node for node, reply in self._exchange(questions(nodes), _START_SECONDS)}
        if found.keys() != set(range(self.config.clients)):
            raise EngineError(f"Flower's simulation did not start its clients within {_START_SECONDS:g} s.")
        return cast("dict[int, int]", found)

    def _exchange(self, messages: list[Message], seconds: float) -> Iterator[tuple[int, Message]]:
        """The replies as they come, with their nodes, until all are there or the time is over."""
        nodes = {}
        for message in messages:
            for number in self._grid.push_messages([message]):
                nodes[number] = message.metadata.dst_node_id
        deadline = time.monotonic() + seconds
        while nodes and time.monotonic() < deadline:
            self._check()
            for reply in self._grid.pull_messages(list(nodes)):
                yield nodes.pop(reply.metadata.reply_to_message_id), reply
            if nodes:
                time.sleep(_POLL_SECONDS)

    def _check(self) -> None:
        if self._ended.is_set():
            raise EngineError(f"Flower's simulation has ended. {self._failure}")

    def _message(self, server: Server, call: Call) -> Message:
        train = call.name == "train"
        order = call.ordered(server, self._holds.pop(call.client, ...)).order
        config: dict[str, Any] = {"run": self._run, "round": server.current.round, "eta": server.eta if train else 0.0}
        ours: dict[str, Any] = {
            ORDER: order, "arrays": _ARRAYS, "with_model": server.stages.downlink.name != "model",
            "loss": ["loss"], "examples": "num-examples", "signed": True,
        }  # fmt: skip
        content = RecordDict({_CONFIG: ConfigRecord(config), KEY: ConfigRecord(ours)})
        return Message(content, self._nodes[call.client], MessageType.TRAIN if train else MessageType.EVALUATE)


def launch(request: Request, observer: Observer | None = None) -> dict[str, Any]:
    """Play a run on Flower's simulation."""
    return request.play(observer, FlowerEngine)


def _answer(call: Call, reply: Message) -> Any:
    if reply.has_error():
        return Failure(str(reply.error.reason), model_needed=needs_model(reply))
    try:
        metrics: Any = reply.content.metric_records.get(_METRICS, {})  # of private rounds there are none
        if call.name != "train":
            return float(metrics["loss"])
        found = update_in(reply)
        if found is None:
            return Failure(str(reply.content.config_records[KEY][NOTE]))
        return Trained(found[1], metrics.get("train-seconds", 0.0), metrics.get("encode-seconds", 0.0))
    except (KeyError, TypeError, Refused) as error:
        return Failure(f"its answer cannot be read ({error!r}).")


def _mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """`quantize_mod` with the time that it takes. An error of a task is its client's alone."""
    if _CONFIG not in message.content:  # the question for the partition
        return quantize_mod(message, context, call_next)
    began, config = time.perf_counter(), dict[str, Any](message.content.config_records[_CONFIG])
    Path(os.environ[_WORKERS], str(os.getpid())).touch()
    try:
        with _within(_trainer(config["run"]).config.round_timeout):
            reply = quantize_mod(message, context, call_next)
    except Exception as error:
        return Message(Error(MOD_FAILED, reason_of(error)), reply_to=message)
    if reply.has_content() and _METRICS in reply.content:
        metrics: Any = reply.content.metric_records[_METRICS]
        metrics["encode-seconds"] = time.perf_counter() - began - metrics["train-seconds"]
    return reply


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Stop a client that takes longer, so that its worker is free for the next one."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within round_timeout = {seconds:g} s.")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


app = ClientApp(mods=[_mod])


@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """Train the client whose number is the node's partition, or measure the loss on its data."""
    config: Any = message.content.config_records[_CONFIG]
    trainer, client = _trainer(config["run"]), int(context.node_config["partition-id"])
    weights, began = arrays_in(message.content.array_records[_ARRAYS]), time.perf_counter()
    records: dict[str, Any] = {}
    if message.metadata.message_type == MessageType.TRAIN:
        trained, loss = trainer.train(client, weights, config["round"], config["eta"])
        records[_ARRAYS] = array_record(trained)
    else:
        loss = trainer.loss(client, weights)
    metrics: dict[str, Any] = {
        "loss": loss,
        "num-examples": trainer.examples[client],
        "train-seconds": time.perf_counter() - began,
    }
    return Message(RecordDict({**records, _METRICS: MetricRecord(metrics)}), reply_to=message)


@lru_cache(maxsize=1)
def _trainer(run: str) -> Trainer:
    """Kept from message to message by each of Ray's workers."""
    torch.set_num_threads(1)
    set_threads(1)
    config = settings_here(json.loads(run))
    return Trainer(config, Task.of(config))
