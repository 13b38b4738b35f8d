"""The server's line: a strategy around any other strategy that takes weights. It holds the server of the protocol."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Sequence
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from ..errors import CheckpointError, ConfigError
from ..names import unknown
from ..protocol.arrays import EXACT_NAMES
from ..protocol.downlink import digest_of
from ..protocol.feedback import ROUNDS_KEPT
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..protocol.state import ServerState
from ..quantizers.streams import stream_key
from ..rules import Rule
from ..rules.registry import make
from .averaging import averages as is_mean
from .evaluation import seen, show
from .fleet import Fleet, check_usable
from .form import Form
from .losses import USUAL_KEYS, advice, needs_loss
from .privacy import clipping_norm, refuse_outer
from .receive import positive, receive
from .records import arrays_in
from .sending import TIMEOUT, Envelope, Sent, model_in
from .served import ServedModel
from .starting import Arguments, in_place_of, later
from .traffic import bytes_of, float32_bytes

_log = logging.getLogger("flwr")
_FORMAT = 2  # of state_dict
_SETTINGS = ("strategy", "exact", "loss_key", "lr_key")  # beside those of `aq.Server`
_STEPS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")


class AdaQuantStrategy(Strategy):
    """Quantized updates from the clients that have `quantize_mod`; the rest of the round is the wrapped strategy's.

    Often set:

    - `strategy`: any strategy of `flwr.serverapp.strategy` that takes weights.
    - `rule`: which s in which round. The default "auto" needs nothing set. `AdaQuant(s0=2)` is the paper's rule,
      `Fixed(bits=4)` is the same s in all rounds, and `FullPrecision()` does not quantize. A name of
      `adaquantfl methods`, such as "4bit", works too.
    - `downlink`: "late", the default with "auto", sends the model's change quantized, and later what it left out.
      "exact", the default with other rules, sends what turns the model in a client's Context into the new one, bit for
      bit. "model" sends the whole model in every round, and clients keep nothing.

    Seldom set:

    - `exact`: patterns of names of arrays that are not quantized, by default BatchNorm's statistics.
    - `loss_key`: the clients' metric that is the training loss. By default it is "train_loss", else "loss", else the
      only one with "loss" in its name.
    - `lr_key`: the learning rate in the train config, where the server changes it from round to round.
    - `averages`: whether the wrapped strategy's model is a mean over the clients, for the rule "auto". By default it is
      known of Flower's own strategies and their subclasses.
    - The settings of `aq.Server`: quantizer, scope, codec, norm, feedback, sparsity, seed, max_update_norm,
      norm_action, max_examples, min_clients, loss_smoothing, cost.

    `server` is the `aq.Server`, from the first round on; `refusals` has the nodes of the last round whose replies were
    refused, with the reasons.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> from adaquantfl import AdaQuant
    >>> strategy = AdaQuantStrategy(FedAvg(fraction_train=0.5), rule=AdaQuant(s0=2), max_update_norm="10x")
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        rule: Rule | str = "auto",
        downlink: str = "",
        min_clients: int = 1,
        averages: bool | None = None,
        exact: str | Sequence[str] = EXACT_NAMES,
        loss_key: str | None = None,
        lr_key: str = "lr",
        **settings: Any,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigError(
                "AdaQuantStrategy wraps a strategy of flwr.serverapp.strategy, such as FedAvg(); this is a "
                f"{type(strategy).__module__}.{type(strategy).__qualname__}."
            )
        if own := {"step", "cohort"} & set(settings):
            raise ConfigError(f"{own.pop()} is not a setting here: the wrapped strategy samples and aggregates.")
        known = tuple(inspect.signature(Stages.of).parameters)
        if others := [name for name in settings if name not in known]:
            raise ConfigError(unknown("setting of AdaQuantStrategy", others[0], [*_SETTINGS, *known]))
        self._exact = (exact,) if isinstance(exact, str) else tuple(exact)
        if not all(isinstance(pattern, str) for pattern in self._exact):
            raise ConfigError(f"exact = {exact!r}: expected a list of name patterns, such as ['*running_var'].")
        self.strategy = strategy
        self.refusals: dict[int, str] = {}
        if isinstance(rule, str):
            rule = make(rule)
        mean = is_mean(strategy) if averages is None else averages
        self._stages = Stages.of(rule, downlink=downlink, min_clients=min_clients, averages=mean, **settings)
        stream_key(self._stages.seed, 0, 0)  # refuses a seed that is none
        self._loss_keys = USUAL_KEYS if loss_key is None else (loss_key,)
        self._lr_key = lr_key
        self._weight_key = str(getattr(strategy, "weighted_by_key", "num-examples"))
        self._fleet = Fleet()
        self._served = ServedModel(self._stages, self._exact, self._fleet.once)
        self._before: ServerState | None = None  # the server's state before the round that is out, to return to
        self._sent: Sent | None = None  # the messages of that round
        self._viewing: Sent | None = None  # those of the evaluation that is out
        self._timeout, self._seconds = TIMEOUT, 0.0
        self._rounds = self._resumed = 0  # Flower's rounds so far, and those of the state that was loaded
        # The wrapped strategy's own steps: `start` puts ours in their place.
        self._steps = SimpleNamespace(**{name: getattr(strategy, name) for name in _STEPS})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages, with each client's order."""
        refuse_outer(self)
        messages = list(self._steps.configure_train(server_round, arrays, config, grid))
        began = perf_counter()
        if self.server is not None and self._before is not None:  # its replies were never aggregated
            self.server.return_to(self._before)
        self._sent = Sent.of(messages, grid, self._timeout)
        asked = self._fleet.take(messages)
        self._before = self._open(asked, self._sent) if asked else None
        self._sent.count()
        self._seconds = perf_counter() - began
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Updates become arrays again, and the wrapped strategy aggregates them. Adds this round's metrics.

        EngineError where no reply can be used: without it the run would end with a model that was never trained.
        """
        replies, server, sent = list(replies), self.server, self._sent
        asked = len(sent.messages) if sent is not None else 0
        if self._before is None or server is None or sent is None:
            failed = {reply.metadata.src_node_id: str(reply.error.reason) for reply in replies if reply.has_error()}
            check_usable(server_round, asked, len(replies) - len(failed), failed)
            self._rounds = server_round
            arrays, metrics = self._steps.aggregate_train(server_round, replies)
            return arrays, metrics
        before, self._before, began = self._before, None, perf_counter()
        replies, lost, plain = sent.again(replies, lambda node: server.whole_order(self._fleet.numbers[node]))
        self._fleet.note_second(lost, plain)
        bytes_up = bytes_of(replies)
        received = receive(
            server, replies, self._fleet.numbers, self._weight_key, self._served.form, clipping_norm(self.strategy)
        )
        self.refusals = received.refused
        self._fleet.say(server_round, received)
        for node, weight in received.capped.items():
            _log.warning("Node %d says %s = %g, which is above max_examples.", node, self._weight_key, weight)
        if not received.usable:
            server.return_to(before)
        check_usable(server_round, asked, received.usable, {**received.failed, **received.refused})
        loss = received.loss(self._loss_keys, self._weight_key)  # first: strategies may empty the replies
        if loss is None and needs_loss(self._stages.rule):
            self._fleet.once("loss", "%s", advice(self._loss_keys))
        self._seconds += perf_counter() - began - sent.waited
        arrays, metrics = self._steps.aggregate_train(server_round, received.messages)
        began = perf_counter()
        self._rounds = server_round
        arrays, facts = self._served.close(server, before, received.heard, arrays, loss)
        server.viewed((), lost=[self._fleet.numbers[node] for node in received.failed if node in self._fleet.numbers])
        model = float32_bytes(before.layout)
        traffic = {
            "aq_wire_bytes_down": sent.wire_bytes,
            "aq_message_bytes_up": bytes_up,
            "aq_message_bytes_down": sent.message_bytes,
            "aq_ratio_up": model * received.answered / bytes_up,
            "aq_ratio_down": model * len(sent.messages) / sent.message_bytes,
            "aq_seconds": self._seconds + perf_counter() - began,
        }
        return arrays, MetricRecord({**(metrics or {}), **received.metrics, **traffic, **facts})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages; a client that holds a model is sent what changed since."""
        messages = list(self._steps.configure_evaluate(server_round, arrays, config, grid))
        self._viewing = Sent.of(messages, grid, self._timeout)
        if self.server is not None and (asked := self._fleet.take(messages)):
            show(self.server, self._served.form, self._fleet, asked, self._viewing)
        self._viewing.count()
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The wrapped strategy's metrics, and the bytes of the messages."""
        replies, sent = list(replies), self._viewing
        if self.server is None or sent is None:
            untouched: MetricRecord | None = self._steps.aggregate_evaluate(server_round, replies)
            return untouched
        answers, bytes_up = seen(self.server, self._fleet, sent, replies)
        metrics = self._steps.aggregate_evaluate(server_round, answers)
        if metrics is None:
            return None
        return MetricRecord({**metrics, "aq_message_bytes_up": bytes_up, "aq_message_bytes_down": sent.message_bytes})

    def summary(self) -> None:
        """Log the settings, then the wrapped strategy's."""
        uplink = self._stages.uplink
        kind = uplink.quantizer.name if uplink.quantizer else "the rule's"
        _log.info("\t├──> AdaQuantFL settings:")
        _log.info("\t│\t├── Rule: %s", self._stages.rule)
        _log.info(
            "\t│\t├── Quantizer: %s | scope: %s | codec: %s",
            kind,
            uplink.scope,
            uplink.codec,
        )
        _log.info("\t│\t└── Downlink: %s | seed: %d", self._stages.downlink.name, self._stages.seed)
        self._steps.summary()

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy's `start`, be it Flower's or its own, with our steps instead of its own.

        After `load_state_dict`, the number of the round that clients, strategy and `evaluate_fn` see continues.
        Flower's log and its result count the rounds of this call.
        """
        given, rounds = Arguments(self.strategy.start, args, kwargs), self._resumed
        self._timeout = float(given.get("timeout", TIMEOUT))
        if evaluate := given.get("evaluate_fn"):
            given.replace("evaluate_fn", later(evaluate, rounds))
        steps = {name: later(getattr(self, name), rounds) for name in _STEPS if name != "summary"}
        with in_place_of(self.strategy, {**steps, "summary": self.summary}):
            result = self.strategy.start(*given.args, **given.kwargs)
        if isinstance(result, Result) and not result.arrays and self.server is not None:
            _log.warning("No round changed the model: the result has the model that the run began with.")
            result.arrays = self.arrays
        return result

    def __getattr__(self, name: str) -> Any:
        """What the wrapped strategy has and this one has not: apps call methods of their own strategy."""
        if name.startswith("__") or "strategy" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.strategy, name)

    @property
    def server(self) -> Server | None:
        """The server of the protocol, from the first round on."""
        return self._served.server

    @property
    def arrays(self) -> ArrayRecord:
        """The present model, from the first round on, or from a state that was loaded."""
        return self._served.arrays

    def state_dict(self) -> dict[str, Any]:
        """The state as a plain tree of arrays, bytes, numbers and text; `adaquantfl.checkpoint` writes it to a folder.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> AdaQuantStrategy(FedAvg()).state_dict()
        {'format': 2, 'server': None, 'clients': {}, 'tied': {}, 'rounds': 0}
        """
        clients = {str(node): number for node, number in self._fleet.numbers.items()}
        state = {"format": _FORMAT, "server": self.server and self.server.state(), "clients": clients}
        return {**state, "tied": self._served.form.settings, "rounds": self._rounds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state: model, levels, bits and randomness continue where they were.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = AdaQuantStrategy(FedAvg())
        >>> strategy.load_state_dict(strategy.state_dict())
        """
        try:
            if state["format"] != _FORMAT:
                raise CheckpointError(f"The state has format {state['format']}; this version reads {_FORMAT}.")
            self._served.server = Server.restore(state["server"], self._stages) if state["server"] else None
            self._served.form = Form.of_settings(state["tied"])
            self._fleet.numbers = {int(node): int(number) for node, number in state["clients"].items()}
            self._before = None
            self._rounds = self._resumed = int(state["rounds"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"This is not a state of AdaQuantStrategy ({error!r}).") from error

    def _open(self, messages: list[Message], sent: Sent) -> ServerState | None:
        """Open a round and write the orders; the state before it. None where it cannot be: then the round is as it was
        without us."""
        try:
            name, record = model_in(messages)
            weights = arrays_in(record)
            server = self._served.at(weights)
        except ConfigError as error:
            self._fleet.once(str(error), "AdaQuantStrategy leaves rounds as they are. %s", error)
            return None
        before = server.current
        clients = self._fleet.clients(messages)
        orders = server.open(clients, self._learning_rate(messages[0]))
        settings = {
            "arrays": name,
            "seed": self._stages.seed,
            "with_model": self._stages.downlink.name != "model",
            "rounds_kept": ROUNDS_KEPT if self._stages.rolls_back else 1,
            "loss": list(self._loss_keys),
            "examples": self._weight_key,
            "round": before.round,
            **self._served.form.settings,
        }
        same = digest_of(before.layout.split(self._served.form.once(weights))) == before.log.digest
        sent.envelope = Envelope(name, same, settings)
        for message, client in zip(messages, clients, strict=True):
            message.content = sent.envelope.write(message.content, orders[client])
        return before

    def _learning_rate(self, message: Message) -> float:
        """eta_k from the train config; it matters only where it changes."""
        for config in message.content.config_records.values():
            if eta := positive(config.get(self._lr_key)):
                return eta
        return 1.0
