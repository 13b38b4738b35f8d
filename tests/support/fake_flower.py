"""A Flower federation in this process: real apps and messages, serialized and read again, but no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from adaquantfl.flower import quantize_mod

Arrays = dict[str, npt.NDArray[Any]]

MODEL: Arrays = {
    "conv": np.linspace(-1, 1, 600, dtype="f4").reshape(20, 30),
    "half": np.linspace(-1, 1, 40).astype("f2"),
    "double": np.linspace(-1, 1, 40),
    "bias": np.array(0.5, "f4"),
    "running_var": np.full(4, 0.1, "f4"),
    "num_batches_tracked": np.array(3, "i8"),
}
Change = Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]


def record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def arrays_of(message: Message) -> Arrays:
    (answer,) = message.content.array_records.values()
    return {name: array.numpy() for name, array in answer.items()}


def carry(message: Message) -> Message:
    """The message as the other side reads it from the wire."""
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    read = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(read, Message)
    return read


def train_message(arrays: Mapping[str, npt.NDArray[Any]], config: dict[str, Any] | None = None) -> Message:
    content = RecordDict({"arrays": record(arrays), "config": ConfigRecord(config or {})})
    return Message(content, dst_node_id=7, message_type="train")


def context(node: int, partition: int | str | None = None) -> Context:
    node_config = {} if partition is None else {"partition-id": partition}
    return Context(run_id=1, node_id=node, node_config=node_config, state=RecordDict(), run_config={})


class Client:
    """A client whose training is `change`, applied to each array. examples is its weight."""

    def __init__(
        self, change: Change, *, examples: int = 10, loss: float | None = 1.0, mods: Sequence[Any] = (quantize_mod,)
    ) -> None:
        self.change, self.examples, self.loss = change, examples, loss
        self.metrics: dict[str, float] = {}  # more of them
        self.app = ClientApp(mods=list(mods))
        self.app.train()(self._train)
        self.app.evaluate()(self._evaluate)

    def _train(self, message: Message, context: Context) -> Message:
        trained = {name: self.change(name, array) for name, array in arrays_of(message).items()}
        metrics: dict[str, Any] = {"num-examples": self.examples, **self.metrics}
        if self.loss is not None:
            metrics["train_loss"] = self.loss
        content = RecordDict({"arrays": record(trained), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": self.examples, "seen": len(arrays_of(message))})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)


class FakeGrid(Grid):
    """Nodes 1000, 1001, ... with partitions 0, 1, ...; `tamper` changes a reply on its way.

    contexts: what Flower keeps for each node's ClientApp from message to message.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients = clients
        self.tamper: dict[int, Callable[[Message], Message]] = {}
        self.sent: list[Message] = []
        self.order = list(range(len(clients)))  # of arrival
        self.contexts = [context(1000 + number, number) for number in range(len(clients))]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = {}
        for message in messages:
            self.sent.append(message)
            number = message.metadata.dst_node_id - 1000
            delivered = carry(message)
            try:
                reply = self.clients[number].app(delivered, self.contexts[number])
            except Exception as error:  # as a SuperNode does it
                reply = Message(Error(2, str(error)), reply_to=delivered)
            replies[number] = self.tamper.get(number, lambda reply: reply)(carry(reply))
        return [replies[number] for number in self.order if number in replies]

    def get_node_ids(self) -> Iterable[int]:
        return [1000 + number for number in range(len(self.clients))]

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError


def run(
    strategy: Strategy, grid: FakeGrid, rounds: int = 1, model: Mapping[str, npt.NDArray[Any]] = MODEL, **options: Any
) -> Result:
    return strategy.start(grid=grid, initial_arrays=record(model), num_rounds=rounds, **options)


def final(result: Result) -> Arrays:
    return {name: array.numpy() for name, array in result.arrays.items()}


def same(a: Result, b: Result) -> bool:
    """Whether two runs have ended in one model, to the bit."""
    return all(np.array_equal(array, final(b)[name]) for name, array in final(a).items())


def step(number: int) -> Callable[[str, Any], Any]:
    """A client's training: another direction for each client."""

    def change(name: str, array: Any) -> Any:
        if array.dtype.kind != "f":
            return array + array.dtype.type(1)
        noise = np.random.default_rng([number, len(name)]).standard_normal(array.shape)
        return (array + 0.01 * np.abs(noise) if name == "running_var" else array + 0.01 * noise).astype(array.dtype)

    return change


def clients(count: int = 4, **options: Any) -> list[Client]:
    return [Client(step(number), examples=10 + number, **options) for number in range(count)]
