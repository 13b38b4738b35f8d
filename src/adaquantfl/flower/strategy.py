"""The server's line: a strategy around any other strategy that takes weights. It decides s and decodes the replies."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, MetricRecordValues
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from ..errors import CheckpointError, ConfigError, ScheduleError
from ..protocol.limits import NormLimit
from ..rules import AdaQuant, Schedule, ScheduleState
from ..theory import bits_per_element, paper_bits
from .plan import EXACT, Plan
from .receive import Received, Refusal, receive
from .update import Model

_log = logging.getLogger("flwr")
_LOSS_KEYS = ("train_loss", "loss")  # as in Flower's own examples
_FORMAT = 1  # of state_dict


@dataclass(frozen=True)
class StrategyState:
    """What goes from round to round. paper_bits: one client's uplink so far; bytes are sums over clients.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> state = AdaQuantStrategy(FedAvg(), schedule=AdaQuant(s0=4)).state
    >>> state.schedule.s, state.round, state.paper_bits, state.wire_bytes
    (4, 0, 0, 0)
    """

    schedule: ScheduleState
    round: int = 0
    loss: float | None = None  # the last round's training loss, weighted over clients
    paper_bits: int = 0
    payload_bytes: int = 0
    wire_bytes: int = 0
    refused: int = 0


@dataclass(frozen=True)
class _Round:
    """A round that has been sent out."""

    plan: Plan
    models: dict[int, Model]  # what each node was sent
    levels: int | None  # the frames' s; None where nothing is quantized
    paper_bits: int  # of one client's reply

    @property
    def bits_per_element(self) -> int:
        return 32 if self.levels is None else bits_per_element(self.levels)


class AdaQuantStrategy(Strategy):
    """Quantized updates from the clients that have `quantize_mod`; the rest of the round is the wrapped strategy's.

    Often set. strategy: any strategy of `flwr.serverapp.strategy` that takes weights. schedule: which s in which round;
    `AdaQuant(s0=2)` by default, `Fixed(bits=4)` for the same in all rounds, `FullPrecision()` to compare without.
    quantizer: "uniform" is the paper's; "centroid" errs less at the same bytes and takes more time. seed: of its
    randomness. max_update_norm: refuse updates with a larger l2 norm; a number, or "10x" for ten times the round's
    median; 0 is no limit.

    Seldom set. scope: a norm for each "tensor" (robust), one for the "whole" model (the paper's; fewest bytes, most
    noise), or one for so many elements. codec: "auto" takes the smallest and never changes the model. exact: patterns
    of names of arrays that travel as they are, by default BatchNorm's statistics. loss_key: the clients' metric that
    is the training loss; by default "train_loss", else "loss". lr_key: the learning rate in the train config, where
    the server changes it from round to round.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> strategy = AdaQuantStrategy(FedAvg(fraction_train=0.5), schedule=AdaQuant(s0=2), max_update_norm="10x")
    >>> strategy.state.schedule.s
    2
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        schedule: Schedule | None = None,
        seed: int = 0,
        max_update_norm: float | str = 0.0,
        quantizer: str = "uniform",
        scope: str | int = "tensor",
        codec: str = "auto",
        exact: str | Sequence[str] = EXACT,
        loss_key: str | None = None,
        lr_key: str = "lr",
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigError(
                "AdaQuantStrategy wraps a strategy of flwr.serverapp.strategy, such as FedAvg(); this is a "
                f"{type(strategy).__module__}.{type(strategy).__qualname__}."
            )
        self.strategy = strategy
        self.schedule = AdaQuant(s0=2) if schedule is None else schedule
        if self.schedule.clients_choose or self.schedule.candidates(1.0):
            raise ScheduleError(
                f"{type(self.schedule).__name__} needs clients that take part in the choice of s, which quantize_mod's "
                "do not. Run a preset with --engine flower, or choose another schedule."
            )
        self.state = StrategyState(self.schedule.init())
        self.refusals: list[Refusal] = []  # of the last round
        names = (exact,) if isinstance(exact, str) else tuple(exact)
        self._settings = Plan(0, None, seed, scope, codec, names, quantizer)
        self._limit = NormLimit.of(max_update_norm)
        self._loss_keys = _LOSS_KEYS if loss_key is None else (loss_key,)
        self._lr_key = lr_key
        self._weight_key = getattr(strategy, "weighted_by_key", "num-examples")
        self._sent: _Round | None = None
        # The wrapped strategy's own steps: `start` puts ours in their place.
        self._configure, self._aggregate, self._summary = (
            strategy.configure_train,
            strategy.aggregate_train,
            strategy.summary,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages, with this round's plan."""
        messages = list(self._configure(server_round, arrays, config, grid))
        self._sent = self._plan(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Updates become arrays again, and the wrapped strategy aggregates them. Adds this round's metrics."""
        if self._sent is None:
            return self._aggregate(server_round, replies)
        sent, self._sent = self._sent, None
        received = receive(replies, sent.models, sent.plan, self._limit)
        self.refusals = received.refused
        for refusal in received.refused:
            _log.warning("Refused the reply of node %d: %s", refusal.node, refusal.reason)
        loss = self._loss(received)  # first: strategies may empty the replies
        arrays, metrics = self._aggregate(server_round, received.messages)
        state = self.state
        self.state = replace(
            state,
            round=state.round + 1,
            loss=state.loss if loss is None else loss,
            paper_bits=state.paper_bits + (sent.paper_bits if received.used else 0),
            payload_bytes=state.payload_bytes + received.payload_bytes,
            wire_bytes=state.wire_bytes + received.wire_bytes,
            refused=state.refused + len(received.refused),
        )
        return arrays, MetricRecord({**(metrics or {}), **_metrics(sent, received)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The wrapped strategy's messages."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The wrapped strategy's metrics."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings, then the wrapped strategy's."""
        plan = self._settings
        _log.info("\t├──> AdaQuantFL settings:")
        _log.info("\t│\t├── Schedule: %s", self.schedule)
        _log.info("\t│\t├── Quantizer: %s", plan.quantizer)
        _log.info("\t│\t└── Scope: %s | codec: %s | seed: %d", plan.scope, plan.codec, plan.seed)
        self._summary()

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy's `start`, be it Flower's or its own, with our steps in the place of its."""
        steps = {
            "configure_train": self.configure_train,
            "aggregate_train": self.aggregate_train,
            "summary": self.summary,
        }
        attributes = vars(self.strategy)
        before = {name: attributes[name] for name in steps if name in attributes}
        attributes.update(steps)
        try:
            return self.strategy.start(*args, **kwargs)
        finally:
            for name in steps:
                del attributes[name]
            attributes.update(before)

    def state_dict(self) -> dict[str, Any]:
        """The state in plain numbers, for JSON: save it beside the model after a round.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> sorted(AdaQuantStrategy(FedAvg()).state_dict())
        ['format', 'loss', 'paper_bits', 'payload_bytes', 'refused', 'round', 'schedule', 'wire_bytes']
        """
        return {"format": _FORMAT, **asdict(self.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state: levels, bits and randomness continue where they were.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = AdaQuantStrategy(FedAvg())
        >>> strategy.load_state_dict({**strategy.state_dict(), "round": 7, "loss": 0.6})
        >>> strategy.state.round
        7
        """
        try:
            fields = dict(state)
            if (found := fields.pop("format")) != _FORMAT:
                raise CheckpointError(f"The state has format {found}; this version reads {_FORMAT}.")
            self.state = StrategyState(**{**fields, "schedule": ScheduleState(**fields["schedule"])})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"This is not a state of AdaQuantStrategy ({error!r}).") from error

    def _plan(self, messages: list[Message]) -> _Round | None:
        """Decide s and tell the clients. None where there is nothing to quantize: then the round is as it was."""
        models = _models(messages)
        sizes = next(iter(models.values())).sizes(self._settings) if models else []
        if not sizes:
            for message in messages:
                self._settings.write(message)  # without s: takes an earlier plan out
            if messages:
                _log.warning("AdaQuantStrategy found no arrays of floats to quantize and leaves this round as it is.")
            return None
        d, segments, state = sum(sizes), self._settings.segments(sizes), self.state
        if state.round and state.loss is None and self.schedule.wants_loss(state.schedule, state.paper_bits):
            _log.warning(
                "No client reports a training loss above 0 as %s, so that s stays %s. Return it in the client's "
                "MetricRecord, or name its key: AdaQuantStrategy(..., loss_key=...).",
                " or ".join(map(repr, self._loss_keys)),
                state.schedule.s,
            )
        schedule = self.schedule.step(
            state.schedule, bits=state.paper_bits, dimension=d, loss=state.loss, eta=self._learning_rate(messages[0])
        )
        self.state = replace(state, schedule=schedule)
        plan = replace(self._settings, round=state.round, s=schedule.s)
        for message in messages:
            plan.write(message)
        levels = None if plan.s is None else plan.levels(sizes)[0]
        scales = 1 if segments is None else len(segments)
        return _Round(plan, models, levels, 32 * d if levels is None else paper_bits(d, levels, scales))

    def _learning_rate(self, message: Message) -> float:
        """eta_k from the train config; it matters only where it changes."""
        for config in message.content.config_records.values():
            if eta := _positive(config.get(self._lr_key)):
                return eta
        return 1.0

    def _loss(self, received: Received) -> float | None:
        """f(w_k): the clients' training losses, weighted as the wrapped strategy weighs them. A loss that the rule
        cannot use (NaN, infinite, not above 0) is left out, so that one client cannot stop the run with it."""
        pairs = []
        for answer in received.used:
            for metrics in answer.message.content.metric_records.values():
                loss = next((_positive(metrics[key]) for key in self._loss_keys if key in metrics), None)
                weight = _positive(metrics.get(self._weight_key, 1))
                if loss and weight:
                    pairs.append((weight, loss))
        total = sum(weight for weight, _ in pairs)
        return _positive(sum(weight * loss for weight, loss in pairs) / total) if pairs else None


def _models(messages: list[Message]) -> dict[int, Model]:
    """What each node is sent; usually everybody the same."""
    models: dict[int, Model] = {}
    known: dict[int, Model] = {}
    for message in messages:
        records = list(message.content.array_records.values())
        if len(records) == 1:
            key = id(records[0])
            known[key] = known.get(key) or Model(records[0])
            models[message.metadata.dst_node_id] = known[key]
    return models


def _positive(value: object) -> float | None:
    """A finite number above 0, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _metrics(sent: _Round, received: Received) -> dict[str, MetricRecordValues]:
    """What this round sent: paper_bits is one client's, bytes are sums over clients."""
    kinds = [refusal.kind for refusal in received.refused]
    return {
        **({} if sent.plan.s is None else {"aq_s": sent.plan.s}),
        "aq_bits_per_element": sent.bits_per_element,
        "aq_paper_bits": sent.paper_bits,
        "aq_payload_bytes": received.payload_bytes,
        "aq_wire_bytes": received.wire_bytes,
        "aq_quantized": received.quantized,
        "aq_plain": len(received.used) - received.quantized,
        "aq_refused": len(kinds),
        "aq_refused_frame": kinds.count("frame"),
        "aq_refused_norm": kinds.count("norm"),
    }
