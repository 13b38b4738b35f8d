"""The rounds of an `AdaQuantStrategy`: open one with the orders in its messages, close it with the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from ..errors import AdaQuantError, ConfigError, EngineError
from ..private.settings import Private
from ..protocol.arrays import EXACT_NAMES, AnyArray
from ..protocol.parcels import digest_of
from ..protocol.round import smoothed
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..protocol.state import ServerState
from ..protocol.uplink import ROUNDS_KEPT
from ..rules import Need
from . import masked
from .batchnorm import statistics_by_place
from .fleet import Fleet, check_usable, log
from .losses import advice
from .receive import positive, receive
from .records import HOLDS, array_record, arrays_in, why_failed, without_ours
from .sending import Sent, bytes_of, model_in, partitions

Aggregate = Callable[[int, list[Message]], tuple[ArrayRecord | None, MetricRecord | None]]
_NO_STATISTICS = "By their places, none looks like BatchNorm's statistics."
_NAME_THEM = "If that is wrong, name the arrays that are not to be quantized: AdaQuantStrategy(..., exact=[...])."


@dataclass
class Rounds:
    """Plays rounds with a server of the protocol.

    Attributes:
        stages: of that server.
        exact: patterns of names that are not quantized.
        weight_key: the metric by which the wrapped strategy weighs.
        loss_keys: the metrics that may be the training loss.
        lr_key: the learning rate in the train config.
        average: averages the metrics, where there is no wrapped strategy.
        private: how updates are kept from the server.
        server: None before the first round.
        fleet: the nodes.
        refusals: the nodes of the last round whose replies were refused, with the reasons.
    """

    stages: Stages
    exact: tuple[str, ...]
    weight_key: str
    loss_keys: Sequence[str]
    lr_key: str
    average: FedAvg | None
    private: Private
    server: Server | None = None
    fleet: Fleet = field(default_factory=Fleet)
    refusals: dict[int, str] = field(default_factory=dict)
    _before: ServerState | None = None  # the server's state before the round that is out, to return to
    _sent: Sent | None = None  # the messages of that round
    _viewing: Sent | None = None  # those of the evaluation that is out
    _seconds: float = 0.0

    @property
    def arrays(self) -> ArrayRecord:
        """The present model as Flower carries it."""
        if self.server is None:
            raise ConfigError("The strategy has no model before its first round.")
        return array_record(self.server.weights)

    def restore(self, tree: Mapping[str, Any] | None) -> None:
        """Take the server from a state that was written down; no round is out then."""
        self._before = self.server = None
        if tree is not None and self.private.masks:
            from ..private.server import Server as PrivateServer  # it needs the extra

            self.server = PrivateServer.resume(tree, self.private, self.stages)
        elif tree is not None:
            self.server = Server.restore(tree, self.stages)

    def begin(self, weights: Mapping[str, AnyArray], fresh: bool = False) -> Server:
        """Begin with this model, in its own types."""
        exact = (*self.exact, *self._statistics(weights))
        if self.private.masks:
            from ..private.server import Server as PrivateServer  # it needs the extra

            self.server = PrivateServer(weights, self.private, exact=exact, stages=self.stages, fresh=fresh)
        else:
            self.server = Server(weights, exact=exact, stages=self.stages, fresh=fresh)
        return self.server

    def open(self, messages: list[Message], grid: Grid, timeout: float) -> None:
        """Open a round and write the orders, unless the model cannot be quantized."""
        began = perf_counter()
        if self.server is not None and self._before is not None:  # its replies were never aggregated
            self.server.return_to(self._before)
        self._sent = Sent(messages, grid, timeout)
        self._before = self._open(messages, self._sent) if messages else None
        self._sent.message_bytes = bytes_of(messages)
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
        server, sent, before, self._before = self.server, self._sent, self._before, None
        asked = len(sent.messages) if sent is not None else 0
        if before is None or server is None or sent is None:
            failed = {reply.metadata.src_node_id: why_failed(reply) for reply in replies if reply.has_error()}
            check_usable(server_round, asked, len(replies) - len(failed), failed)
            if aggregate is None:
                raise ConfigError("The model cannot be quantized; wrap a strategy: AdaQuantStrategy(FedAvg()).")
            return aggregate(server_round, replies)
        began, numbers = perf_counter(), self.fleet.numbers
        replies = self._with_second(sent, replies)
        try:
            if self.private.masks:
                received = masked.receive(server, sent, replies, numbers, self.weight_key, self.loss_keys[0])  # type: ignore[arg-type] # it is a private one
            else:
                received = receive(server, replies, numbers, self.weight_key, averages=aggregate is None)
        except AdaQuantError as error:
            if not self.private.masks and not isinstance(error, EngineError):
                raise
            # In a private round too few are left, or somebody lied.
            log.warning("The model stays as it is. %s", error)
            server.return_to(before)
            return None, None
        if bound is not None:
            received.clip(server, bound)
        self.refusals = received.refused
        self.fleet.say(server_round, received)
        if not received.usable:
            server.return_to(before)
        check_usable(server_round, asked, received.usable, {**received.failed, **received.refused})
        loss = received.loss(self.loss_keys, self.weight_key)  # first: strategies may empty the replies
        for node in received.bounded:
            self.fleet.once(f"bounded {node}", "Node %d reports a loss far from that of the others.", node)
        if loss is None and self.stages.rule.needs & {Need.LOSS, Need.ROUND_LOSS}:
            self.fleet.once("loss", "%s", advice(self.loss_keys))
        self._seconds += perf_counter() - began - sent.waited
        if aggregate is None:
            assert self.average is not None
            contents: Any = [message.content for message in received.messages]
            arrays, metrics = None, self.average.train_metrics_aggr_fn(contents, self.weight_key)
        else:
            failures = [reply for reply in replies if reply.has_error()]
            arrays, metrics = aggregate(server_round, [*received.messages, *failures])  # type: ignore[assignment]
        began = perf_counter()
        layout, facts = before.layout, dict[str, Any]()
        made = None if arrays is None else layout.typed(arrays_in(arrays))
        if aggregate is None or (made is not None and received.heard):
            arrays, facts = self._end(server, before, made, loss)
        else:  # only plain weights; or nothing was made of the updates
            server.return_to(before)
            arrays = array_record(made) if made is not None and layout.has_bfloat16 else arrays
        server.forget([numbers[node] for node in received.failed if node in numbers])
        float32, answered = 4 * (layout.dimension + layout.buffers) + layout.other_bytes, received.usable
        traffic = {
            "aq_message_bytes_up": received.bytes_up,
            "aq_message_bytes_down": sent.message_bytes,
            "aq_ratio_up": float32 * (answered + len(received.refused)) / received.bytes_up,
            "aq_ratio_down": float32 * len(sent.messages) / sent.message_bytes,
            "aq_seconds": self._seconds + perf_counter() - began,
        }
        return arrays, MetricRecord({**(metrics or {}), **received.metrics, **traffic, **facts})

    def show(self, messages: list[Message], grid: Grid, timeout: float) -> None:
        """Write orders into evaluate messages, unless clients keep no model or the messages have another one."""
        server, self._viewing = self.server, Sent(messages, grid, timeout)
        with suppress(ConfigError):  # the messages do not have one model
            if server is not None and messages and self.stages.downlink.name != "model":
                name, record = model_in(messages)
                digest = digest_of(server.current.layout.split(arrays_in(record)))
                if server.has(digest):
                    clients = self.fleet.clients(self._viewing.messages, {})
                    self._viewing.write(server, clients, name, digest == server.digest, {}, evaluate=True)
        self._viewing.message_bytes = bytes_of(messages)

    def seen(self, replies: list[Message]) -> tuple[list[Message], dict[str, int]]:
        """Note who holds the model now. Return the replies for the wrapped strategy, and the bytes as metrics."""
        server, sent, numbers = self.server, self._viewing, self.fleet.numbers
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
            server = self._with_model(weights)
        except ConfigError as error:
            if self.private.masks:  # or clients would send what they have trained
                raise
            self.fleet.once(str(error), "AdaQuantStrategy leaves rounds as they are. %s", error)
            return None
        before, nodes = server.current, list(sent.messages)
        new = [node for node in nodes if node not in self.fleet.numbers] if self.average else []
        clients = self.fleet.clients(nodes, partitions(sent.grid, new))
        rates = (positive(config.get(self.lr_key)) for config in messages[0].content.config_records.values())
        server.open(list(clients.values()), next(filter(None, rates), 1.0))  # eta_k matters only where it changes
        settings = {
            "seed": self.stages.seed,
            "round": before.round,
            "with_model": self.stages.downlink.name != "model",
            "rounds_kept": ROUNDS_KEPT if self.stages.undo else 1,
            "loss": list(self.loss_keys),
            "examples": self.weight_key,
        }
        same = not before.layout.narrow or digest_of(before.layout.split(weights)) == server.digest
        sent.write(server, clients, name, same, settings)
        return before

    def _with_model(self, weights: Mapping[str, AnyArray]) -> Server:
        """The server with this model: the one that it made last, or another where somebody has changed it since."""
        if self.server is not None:
            with suppress(ConfigError):  # another model, with other arrays
                self.server.adopt(weights)
                return self.server
        return self.begin(weights)

    def _end(
        self, server: Server, before: ServerState, made: Mapping[str, AnyArray] | None, loss: float | None
    ) -> tuple[ArrayRecord | None, dict[str, Any]]:
        """Close the round with the wrapped strategy's model; None lets the server add the updates up itself.

        Returns:
            The model to continue with, and what the round took.
        """
        try:
            facts = server.close(made).facts
        except AdaQuantError as error:  # too few updates, or a model that is not finite
            log.warning("The model stays as it is. %s", error)
            server.return_to(before)
            return None, {}
        after = server.current
        if made is not None and "undone" not in facts:
            known = before.loss if loss is None else smoothed(before.loss, loss, self.stages.loss_smoothing)
            server.return_to(replace(after, loss=known))
        names = ("s", "bits_per_element", "masked_bits", "epsilon")
        found: dict[str, Any] = {f"aq_{name}": facts[name] for name in names if facts.get(name) is not None}
        if "paper_bits" in facts:
            found["aq_paper_bits"] = after.ledger.paper_bits - before.ledger.paper_bits
        found["aq_payload_bytes"] = after.ledger.payload_bytes_up - before.ledger.payload_bytes_up
        return self.arrays, found

    def _statistics(self, weights: Mapping[str, AnyArray]) -> list[str]:
        """BatchNorm's statistics where the arrays have no names, unless the user has named them."""
        if not all(name.isdecimal() for name in weights) or self.exact != EXACT_NAMES:
            return []
        found = statistics_by_place(weights)
        names = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
        what = f"BatchNorm's statistics were found by their places: {names}." if found else _NO_STATISTICS
        self.fleet.once("places", "The arrays have numbers for names. %s %s", what, _NAME_THEM)
        return found
