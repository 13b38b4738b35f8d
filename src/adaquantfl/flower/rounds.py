"""The rounds of an `AdaQuantStrategy`: open one with the orders in its messages, close it with the replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from ..errors import AdaQuantError, ConfigError
from ..private.settings import Private
from ..protocol.parcels import digest_of
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..protocol.state import ServerState
from ..protocol.uplink import ROUNDS_KEPT
from . import masked
from .fleet import Fleet, check_usable, log
from .losses import advice, needs_loss
from .receive import positive, receive
from .records import HOLDS, arrays_in, why_failed, without_ours
from .sending import Orders, Sent, bytes_of, float32_bytes, model_in, partitions
from .served import ServedModel

Aggregate = Callable[[int, list[Message]], tuple[ArrayRecord | None, MetricRecord | None]]


class Rounds:
    """Plays rounds with a server of the protocol.

    Args:
        stages: of that server.
        exact: patterns of names that are not quantized.
        weight_key: the metric by which the wrapped strategy weighs.
        loss_keys: the metrics that may be the training loss.
        lr_key: the learning rate in the train config.
        average: averages the metrics, where there is no wrapped strategy.
        private: how updates are kept from the server.

    Attributes:
        fleet: the nodes.
        served: the model.
        refusals: the nodes of the last round whose replies were refused, with the reasons.
    """

    def __init__(
        self,
        stages: Stages,
        exact: Sequence[str],
        *,
        weight_key: str,
        loss_keys: Sequence[str],
        lr_key: str,
        average: FedAvg | None,
        private: Private,
    ) -> None:
        self.fleet = Fleet()
        self.served = ServedModel(stages, exact, self.fleet.once, private)
        self.refusals: dict[int, str] = {}
        self._stages, self._weight_key, self._loss_keys, self._lr_key = stages, weight_key, loss_keys, lr_key
        self._private = private
        self._average = average
        self._before: ServerState | None = None  # the server's state before the round that is out, to return to
        self._sent: Sent | None = None  # the messages of that round
        self._viewing: Sent | None = None  # those of the evaluation that is out
        self._seconds = 0.0

    def forget(self) -> None:
        """No round is out: a state was loaded."""
        self._before = None

    def open(self, messages: list[Message], grid: Grid, timeout: float) -> None:
        """Open a round and write the orders, unless the model cannot be quantized."""
        began = perf_counter()
        if self.served.server is not None and self._before is not None:  # its replies were never aggregated
            self.served.server.return_to(self._before)
        self._sent = Sent.of(messages, grid, timeout)
        self._before = self._open(messages, self._sent) if messages else None
        self._sent.count()
        self._seconds = perf_counter() - began

    def close(
        self, server_round: int, replies: list[Message], aggregate: Aggregate | None, bound: float | None
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the round.

        Args:
            server_round: for the log.
            replies: all of them.
            aggregate: the wrapped strategy's; None lets the server add the updates up.
            bound: of the norm of an update, with differential privacy on the clients.
        """
        server, sent = self.served.server, self._sent
        asked = len(sent.messages) if sent is not None else 0
        if self._before is None or server is None or sent is None:
            failed = {reply.metadata.src_node_id: why_failed(reply) for reply in replies if reply.has_error()}
            check_usable(server_round, asked, len(replies) - len(failed), failed)
            if aggregate is None:
                raise ConfigError("The model cannot be quantized; wrap a strategy: AdaQuantStrategy(FedAvg()).")
            return aggregate(server_round, replies)
        before, self._before, began = self._before, None, perf_counter()
        replies = self._with_second(sent, replies)
        numbers = self.fleet.numbers
        if self._private.masks:
            try:
                received, bytes_up = masked.collect(server, sent, replies, numbers)  # type: ignore[arg-type] # it is a private one
                masked.take_mean(received, server, sent, self._weight_key, self._loss_keys[0])  # type: ignore[arg-type]
            except AdaQuantError as error:  # too few are left, or somebody lied
                log.warning("The model stays as it is. %s", error)
                server.return_to(before)
                return None, None
        else:
            bytes_up = bytes_of(replies)
            received = receive(server, replies, numbers, self._weight_key, averages=aggregate is None)
        if bound is not None:
            received.clip(server, bound)
        self.refusals = received.refused
        self.fleet.say(server_round, received)
        if not received.usable:
            server.return_to(before)
        check_usable(server_round, asked, received.usable, {**received.failed, **received.refused})
        loss = received.loss(self._loss_keys, self._weight_key)  # first: strategies may empty the replies
        for node in received.bounded:
            self.fleet.once(f"bounded {node}", "Node %d reports a loss far from that of the others.", node)
        if loss is None and needs_loss(self._stages.rule):
            self.fleet.once("loss", "%s", advice(self._loss_keys))
        self._seconds += perf_counter() - began - sent.waited
        if aggregate is None:
            assert self._average is not None
            contents: Any = [message.content for message in received.messages]
            metrics, began = self._average.train_metrics_aggr_fn(contents, self._weight_key), perf_counter()
            arrays, facts = self.served.end(server, before, None, loss)
        else:
            failures = [reply for reply in replies if reply.has_error()]
            arrays, metrics = aggregate(server_round, [*received.messages, *failures])  # type: ignore[assignment]
            began = perf_counter()
            arrays, facts = self.served.close(server, before, received.heard, arrays, loss)
        server.forget([numbers[node] for node in received.failed if node in numbers])
        model, answered = float32_bytes(before.layout), received.usable + len(received.refused)
        traffic = {
            "aq_message_bytes_up": bytes_up,
            "aq_message_bytes_down": sent.message_bytes,
            "aq_ratio_up": model * answered / bytes_up,
            "aq_ratio_down": model * len(sent.messages) / sent.message_bytes,
            "aq_seconds": self._seconds + perf_counter() - began,
        }
        return arrays, MetricRecord({**(metrics or {}), **received.metrics, **traffic, **facts})

    def show(self, messages: list[Message], grid: Grid, timeout: float) -> None:
        """Write orders into evaluate messages, unless clients keep no model or the messages have another one."""
        self._viewing = Sent.of(messages, grid, timeout)
        if self.served.server is not None and messages and self._stages.downlink.name != "model":
            self._show(self.served.server, messages, self._viewing)
        self._viewing.count()

    def seen(self, replies: list[Message]) -> tuple[list[Message], dict[str, int]]:
        """Note who holds the model now. Return the replies for the wrapped strategy, and the bytes as metrics."""
        server, sent, numbers = self.served.server, self._viewing, self.fleet.numbers
        if server is None or sent is None:
            return replies, {}
        replies = self._with_second(sent, replies)
        traffic = {"aq_message_bytes_up": bytes_of(replies), "aq_message_bytes_down": sent.message_bytes}
        for reply in replies:
            node, ours = reply.metadata.src_node_id, without_ours(reply) if reply.has_content() else None
            if node in numbers and reply.has_error():
                server.forget([numbers[node]])
            elif node in numbers and ours is not None and ours.get(HOLDS) == server.digest:
                server.holding([numbers[node]])
        return replies, traffic

    def _with_second(self, sent: Sent, replies: list[Message]) -> list[Message]:
        """The replies, where clients that lost their model have answered a second message."""
        replies, lost = sent.again(replies)
        for node in lost:
            self.fleet.once("lost", "Node %d did not hold the model it was sent before. It gets the whole one.", node)
        return replies

    def _open(self, messages: list[Message], sent: Sent) -> ServerState | None:
        """Open a round and write the orders. Return the state before it, or None if the model cannot be quantized."""
        try:
            name, record = model_in(messages)
            weights = arrays_in(record)
            server = self.served.at(weights)
        except ConfigError as error:
            if self._private.masks:  # or clients would send what they have trained
                raise
            self.fleet.once(str(error), "AdaQuantStrategy leaves rounds as they are. %s", error)
            return None
        before = server.current
        nodes = [message.metadata.dst_node_id for message in messages]
        new = [node for node in nodes if node not in self.fleet.numbers] if self._average else []
        clients = self.fleet.clients(nodes, partitions(sent.grid, new))
        server.open(list(clients.values()), self._learning_rate(messages[0]))
        settings = {
            "arrays": name,
            "seed": self._stages.seed,
            "round": before.round,
            "with_model": self._stages.downlink.name != "model",
            "rounds_kept": ROUNDS_KEPT if self._stages.undo else 1,
            "loss": list(self._loss_keys),
            "examples": self._weight_key,
        }
        same = not before.layout.narrow or digest_of(before.layout.split(weights)) == server.digest
        sent.write(Orders(server, clients, name, same, False, settings))
        return before

    def _show(self, server: Server, messages: list[Message], sent: Sent) -> None:
        try:
            name, record = model_in(messages)
            digest = digest_of(server.current.layout.split(arrays_in(record)))
        except ConfigError:
            return
        if server.has(digest):
            clients = self.fleet.clients([message.metadata.dst_node_id for message in messages], {})
            sent.write(Orders(server, clients, name, digest == server.digest, True, {"arrays": name}))

    def _learning_rate(self, message: Message) -> float:
        """eta_k from the train config; it matters only where it changes."""
        for config in message.content.config_records.values():
            if eta := positive(config.get(self._lr_key)):
                return eta
        return 1.0
