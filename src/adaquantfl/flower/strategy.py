"""The server's line: a strategy around any other strategy that takes weights. It holds the server of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from ..errors import CheckpointError, ConfigError
from ..private.settings import Private, check, mode
from ..protocol.arrays import EXACT_NAMES
from ..protocol.downlink import Whole
from ..protocol.limits import REFUSE
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..quantizers.base import Quantizer
from ..rules import FullPrecision, Rule
from .fleet import log
from .losses import USUAL_KEYS
from .masked import refuse_unmasked
from .records import arrays_in
from .rounds import Rounds
from .sending import TIMEOUT
from .wrapped import averages as is_mean
from .wrapped import by_name, clipping_norm, in_place_of, later, refuse_outer

_FORMAT = 2  # of state_dict
_NUMBERED = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")  # by the round


class AdaQuantStrategy(Strategy):
    """Use it around your Flower strategy to get quantized updates from the clients that have `quantize_mod`.

    Without a wrapped strategy, all connected clients are averaged by `aq.Server` itself. The clients then need the mod,
    and the model is the one that the engines of `adaquantfl run` end with.

    Args:
        strategy: any strategy of `flwr.serverapp.strategy` that takes weights; None averages.
        rule: which s in which round. "auto" needs nothing set. `AdaQuant(s0=2)` is the paper's rule, `Fixed(bits=4)`
            has the same s in all rounds, `FullPrecision()` does not quantize. A name of `adaquantfl methods` works too.
        downlink: "late", the default with "auto", sends the model's change quantized, and later what it left out.
            "exact", the default with other rules, sends what turns the model in a client's Context into the new one,
            bit for bit. "model" sends the whole model in every round, and clients keep nothing.
        quantizer: by name or as an object; the default is the rule's own.
        scope: "tensor" gives each array a norm of its own, "whole" the model one; a number is the size of a bucket.
        codec: "auto" takes the smallest; it never changes the model.
        norm: of the quantizer, where it has a choice: "l2" or "linf".
        feedback: whether clients keep what they left out for later; by default where the quantizer is meant for it.
        sparsity: of quantizers without levels (`stc`).
        seed: of all random numbers.
        exact: patterns of names of arrays that are not quantized, by default BatchNorm's statistics.
        loss_key: the clients' metric that is the training loss. By default it is "train_loss", else "loss", else the
            only one with "loss" in its name.
        lr_key: the learning rate in the train config, where the server changes it from round to round.
        averages: whether the wrapped strategy's model is a mean over the clients, for the rule "auto". By default it is
            known of Flower's own strategies and their subclasses.
        min_clients: how many updates a round needs; with fewer the model stays as it is.
        max_update_norm: of an update: a number, or "10x" for ten times the round's median; 0 is no limit.
        norm_action: "refuse" a larger update, or "clip" it.
        max_examples: of a client: a number, or "10x" for ten times the round's median; 0 is no limit.
        loss_smoothing: of the rounds' losses, from 0 to below 1.
        undo: roll rounds back where the loss is this many times the usual one; 0 is never.
        fresh: the initial arrays are random, so that others would do as well: `start` rounds them, and the first model
            takes a sixth of the bytes. All clients need `quantize_mod` then. Leave it off for a trained model.
        private: True or "masked": the server sees only the sum of the updates. "central", "distributed", or an object
            of `adaquantfl.private`, add noise to it. Leave rule and quantizer out; the strategy must be a mean.

    Attributes:
        server: the `aq.Server`, from the first round on.
        refusals: the nodes of the last round whose replies were refused, with the reasons.

    >>> from adaquantfl import AdaQuant
    >>> strategy = AdaQuantStrategy(FedAvg(fraction_train=0.5), rule=AdaQuant(s0=2), max_update_norm="10x")
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        rule: Rule | str = "auto",
        downlink: str | Whole = "",
        quantizer: str | Quantizer = "",
        scope: str | int = "tensor",
        codec: str = "auto",
        norm: str = "",
        feedback: bool | None = None,
        sparsity: int = 400,
        seed: int = 0,
        exact: str | Sequence[str] = EXACT_NAMES,
        loss_key: str | None = None,
        lr_key: str = "lr",
        averages: bool | None = None,
        min_clients: int = 1,
        max_update_norm: float | str = 0.0,
        norm_action: str = REFUSE,
        max_examples: float | str = 0,
        loss_smoothing: float = 0.0,
        undo: float = 0.0,
        fresh: bool = False,
        private: Private | str | bool = False,
    ) -> None:
        self._average = FedAvg() if strategy is None else None  # samples the clients, where the server averages
        strategy = strategy or self._average
        if not isinstance(strategy, Strategy):
            raise ConfigError(
                "AdaQuantStrategy wraps a strategy of flwr.serverapp.strategy, such as FedAvg(); this is a "
                f"{type(strategy).__module__}.{type(strategy).__qualname__}."
            )
        private = mode(private)
        if private.masks:
            refuse_unmasked(strategy, private)
            rule = FullPrecision() if rule == "auto" else rule  # its own rule sees sums only
        patterns = (exact,) if isinstance(exact, str) else tuple(exact)
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise ConfigError(f"exact = {exact!r}: expected a list of name patterns, such as ['*running_var'].")
        self.strategy = strategy
        self._stages = Stages(
            rule, quantizer, scope, downlink, seed, norm=norm, codec=codec, sparsity=sparsity, feedback=feedback,
            min_clients=min_clients, max_update_norm=max_update_norm, norm_action=norm_action, undo=undo,
            max_examples=max_examples, loss_smoothing=loss_smoothing,
            averages=is_mean(strategy) if averages is None else averages,
        )  # fmt: skip
        if private.masks:
            check(private, self._stages)
        self._rounds = Rounds(
            self._stages,
            patterns,
            weight_key=str(getattr(strategy, "weighted_by_key", "num-examples")),
            loss_keys=USUAL_KEYS if loss_key is None else (loss_key,),
            lr_key=lr_key,
            average=self._average,
            private=private,
        )
        self._timeout, self._fresh = TIMEOUT, fresh
        self._done = self._resumed = 0  # Flower's rounds so far, and those of the state that was loaded
        # The wrapped strategy's own steps: `start` puts ours in their place.
        self._steps = SimpleNamespace(**{name: getattr(strategy, name) for name in (*_NUMBERED, "summary")})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the wrapped strategy's messages, with each client's order."""
        refuse_outer(self)
        messages = list(self._steps.configure_train(server_round, arrays, config, grid))
        self._rounds.open(messages, grid, self._timeout)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Turn updates into arrays, let the wrapped strategy aggregate them, and add this round's metrics.

        EngineError where no reply can be used: without it the run would end with a model that was never trained.
        """
        aggregate, self._done = self._steps.aggregate_train, server_round
        if self._average is not None:
            aggregate = None
        return self._rounds.close(server_round, list(replies), aggregate, clipping_norm(self.strategy))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the wrapped strategy's messages; a client that holds a model is sent what changed since."""
        messages = list(self._steps.configure_evaluate(server_round, arrays, config, grid))
        self._rounds.show(messages, grid, self._timeout)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the wrapped strategy's metrics, and the bytes of the messages."""
        replies, traffic = self._rounds.seen(list(replies))
        metrics: MetricRecord | None = self._steps.aggregate_evaluate(server_round, replies)
        return metrics if metrics is None or not traffic else MetricRecord({**metrics, **traffic})

    def summary(self) -> None:
        """Log the main settings, then the wrapped strategy's."""
        stages = self._stages
        log.info("\t├──> AdaQuantFL: %s, downlink %s, seed %d", stages.rule, stages.downlink.name, stages.seed)
        self._steps.summary()

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Run the wrapped strategy's `start`, be it Flower's or its own, with our steps instead of its own.

        After `load_state_dict`, the number of the round that clients, strategy and `evaluate_fn` see continues.
        Flower's log and its result count the rounds of this call.
        """
        given, rounds = by_name(self.strategy.start, args, kwargs), self._resumed
        self._timeout = float(given.get("timeout", TIMEOUT))
        if evaluate := given.get("evaluate_fn"):
            given["evaluate_fn"] = later(evaluate, rounds)
        if self._fresh and self.server is None:
            self._rounds.begin(arrays_in(given["initial_arrays"]), fresh=True)
            given["initial_arrays"] = self.arrays
        steps = {name: later(getattr(self, name), rounds) for name in _NUMBERED}
        with in_place_of(self.strategy, {**steps, "summary": self.summary}):
            result = self.strategy.start(**given)
        if isinstance(result, Result) and not result.arrays and self.server is not None:
            log.warning("No round changed the model: the result has the model that the run began with.")
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
        return self._rounds.server

    @property
    def refusals(self) -> dict[int, str]:
        """The nodes of the last round whose replies were refused, with the reasons."""
        return self._rounds.refusals

    @property
    def arrays(self) -> ArrayRecord:
        """The present model, from the first round on, or from a state that was loaded."""
        return self._rounds.arrays

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a plain tree; `adaquantfl.checkpoint` writes it to a folder.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> AdaQuantStrategy(FedAvg()).state_dict()
        {'format': 2, 'server': None, 'clients': {}, 'rounds': 0}
        """
        clients = {str(node): number for node, number in self._rounds.fleet.numbers.items()}
        server = self.server and self.server.state()
        return {"format": _FORMAT, "server": server, "clients": clients, "rounds": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state: model, levels, bits and randomness continue where they were.

        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = AdaQuantStrategy(FedAvg())
        >>> strategy.load_state_dict(strategy.state_dict())
        """
        try:
            if state["format"] != _FORMAT:
                raise CheckpointError(f"The state has format {state['format']}; this version reads {_FORMAT}.")
            self._rounds.restore(state["server"])
            self._rounds.fleet.numbers = {int(node): int(number) for node, number in state["clients"].items()}
            self._done = self._resumed = int(state["rounds"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"This is not a state of AdaQuantStrategy ({error!r}).") from error
