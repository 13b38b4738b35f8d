"""What a server is put together from: the rule and one object for each stage of a round. None knows another's name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from ..errors import CheckpointError, ConfigError
from ..open_registry import Registry, describe, rebuild
from ..quantizers.base import Quantizer
from ..rules import AdaQuant, Mixing, Rule, RuleState
from ..rules import registry as rules
from .cohort import Cohort
from .downlink import DOWNLINKS, Whole
from .limits import REFUSE, ExamplesLimit, NormLimit
from .step import STEPS, ServerStep
from .uplink import Uplink

T = TypeVar("T")
Price = Callable[[float, float], float]  # (bytes up, bytes down) of one client's round -> what it costs
PRICES: dict[str, Price] = {"up": lambda up, down: up, "both": lambda up, down: up + down}


@dataclass(frozen=True)
class Stages:
    """The settings of a server. loss_smoothing: of the rounds' own losses; 0.9 is over about ten rounds. averages:
    whether the new model is a mean over the clients, in which their noise averages out."""

    rule: Rule
    uplink: Uplink
    downlink: Whole
    step: ServerStep
    cohort: Cohort
    max_update_norm: float | str = 0.0
    loss_smoothing: float = 0.0
    cost: str | Price = "up"
    seed: int = 0
    norm_action: str = REFUSE
    averages: bool = True
    max_examples: float | str = 0

    @staticmethod
    def of(
        rule: Rule | None = None,
        quantizer: str | Quantizer = "",
        scope: str | int = "tensor",
        downlink: str | Whole = "exact",
        seed: int = 0,
        *,
        norm: str = "",
        codec: str = "auto",
        sparsity: int = 400,
        feedback: bool | None = None,
        step: str | ServerStep = "sum",
        min_clients: int = 0,
        cohort: Cohort | None = None,
        max_update_norm: float | str = 0.0,
        norm_action: str = REFUSE,
        max_examples: float | str = 0,
        loss_smoothing: float = 0.0,
        cost: str | Price = "up",
        averages: bool | None = None,
    ) -> Stages:
        """From names or objects, checked."""
        rule = AdaQuant(s0=2) if rule is None else rule
        if not isinstance(rule, Rule):
            raise ConfigError(f"rule = {rule!r}: expected a rule such as AdaQuant(s0=2) or Fixed(bits=4).")
        uplink = Uplink.of(quantizer or rule.usual_quantizer, norm, scope, codec, sparsity, feedback)
        if feedback is False and rule.may_be_late:
            raise ConfigError(
                f"feedback = False does not go with rule {rule.name!r}, whose clients may have to send a part of an "
                "update later: use CostAware(delay=0)."
            )
        rules.describe(rule)  # makes it known, so that clients of this process can choose by it
        if rule.candidates(1.0) and not uplink.quantizer.unbiased:
            raise ConfigError(
                f"quantizer = {uplink.quantizer.name!r} does not go with method = {rule.name!r}, which measures noise "
                "that averages out over the clients: choose one that is unbiased."
            )
        if rule.chooses_by_error and not uplink.quantizer.follows_rule:
            raise ConfigError(
                f"quantizer = {uplink.quantizer.name!r} has no levels that a client could choose by {rule.name!r}: "
                "use it with Fixed(bits=1), or choose another quantizer."
            )
        NormLimit.of(max_update_norm, norm_action)
        ExamplesLimit.of(max_examples)
        if not callable(cost) and cost not in PRICES:
            raise ConfigError(f"cost = {cost!r}: use 'up', 'both', or a function of the bytes up and down.")
        if not 0 <= loss_smoothing < 1:
            raise ConfigError(f"loss_smoothing = {loss_smoothing!r}: it is a number from 0 to below 1.")
        if cohort is not None and min_clients:
            raise ConfigError("min_clients and cohort are both given: set Cohort(least=...) instead.")
        made = _made(STEPS, step, ServerStep, "step")
        return Stages(
            rule,
            uplink,
            _made(DOWNLINKS, downlink, Whole, "downlink"),
            made,
            cohort or Cohort(least=min_clients),
            max_update_norm,
            float(loss_smoothing),
            cost,
            seed,
            norm_action,
            made.averages if averages is None else averages,
            max_examples,
        )

    @property
    def limit(self) -> NormLimit:
        return NormLimit.of(self.max_update_norm, self.norm_action)

    @property
    def examples_limit(self) -> ExamplesLimit:
        return ExamplesLimit.of(self.max_examples)

    @property
    def price(self) -> Price:
        return self.cost if callable(self.cost) else PRICES[self.cost]

    def wants_loss(self, state: RuleState, bits: float) -> bool:
        """Whether the rule's next plan would use f(w_k)."""
        return not self.rule.round_loss and self.rule.wants_loss(state, bits)

    def usable(self, loss: float | None) -> float | None:
        """The mean loss that clients told, where the rule can use it: a mean of 0 is a false one."""
        return loss if loss is None or loss > 0 or self.rule.negative_loss else None

    @property
    def clients_differ(self) -> bool:
        """Whether clients may have levels of their own."""
        return self.rule.client_choice is not None or self.rule.levels_by_weight(1.0, {0: 0.5, 1: 0.5}) is not None

    @property
    def mixing(self) -> Mixing:
        """What becomes of the clients' errors; without the weights of a round."""
        return Mixing(averages=self.averages, feedback=self.uplink.feedback)

    def participation(self, clients: Collection[int], examples: Mapping[int, int]) -> float:
        """The share of all clients that these are. examples: of those that have answered in some round."""
        return len(clients) / max(len(self.cohort.examples), len({*examples, *clients}))

    def levels_by_client(
        self, state: RuleState, clients: Sequence[int], examples: Mapping[int, int], gain: float | None = None
    ) -> dict[int, float | None]:
        """The number that each client's order has instead of s."""
        if state.s is None:
            return dict.fromkeys(clients, None)
        if state.later:
            return dict.fromkeys(clients, state.later)
        if self.rule.client_choice is not None:
            mixing = replace(
                self.mixing,
                weights_squared=self.cohort.noise(clients, examples) ** 2,
                participation=self.participation(clients, examples),
                gain=gain,
            )
            return dict.fromkeys(clients, self.rule.client_number(state, mixing))
        own = self.rule.levels_by_weight(state.s, self.cohort.population(clients, examples))
        return {client: self.uplink.number(own[client] if own else state.s) for client in clients}

    def describe(self) -> dict[str, Any]:
        """The settings as a plain tree."""
        uplink = {field.name: getattr(self.uplink, field.name) for field in fields(Uplink)}
        return {
            "rule": rules.describe(self.rule),
            "uplink": {**uplink, "quantizer": self.uplink.quantizer.name},
            "downlink": describe(DOWNLINKS, self.downlink),
            "step": describe(STEPS, self.step),
            "cohort": {**asdict(self.cohort), "examples": list(self.cohort.examples)},
            "max_update_norm": self.max_update_norm,
            "norm_action": self.norm_action,
            "max_examples": self.max_examples,
            "loss_smoothing": self.loss_smoothing,
            "cost": None if callable(self.cost) else self.cost,
            "seed": self.seed,
            "averages": self.averages,
        }

    @staticmethod
    def of_description(tree: Mapping[str, Any], given: Mapping[str, Any]) -> Stages:
        """The way back. given: objects that a description cannot hold. CheckpointError where one is missing."""
        if others := set(given) - {"rule", "quantizer", "downlink", "step", "cost"}:
            raise ConfigError(f"{others.pop()} cannot be given: it is part of the state.")
        if tree["cost"] is None and "cost" not in given:
            raise CheckpointError("The server's cost was a function. Pass it: restore(state, cost=...).")
        quantizer = given.get("quantizer", tree["uplink"]["quantizer"])
        return Stages(
            given.get("rule") or rules.from_description(tree["rule"]),
            Uplink.of(**{**tree["uplink"], "quantizer": quantizer}),
            given.get("downlink") or rebuild(DOWNLINKS, tree["downlink"], "downlink"),
            given.get("step") or rebuild(STEPS, tree["step"], "step"),
            Cohort(**{**tree["cohort"], "examples": tuple(tree["cohort"]["examples"])}),
            tree["max_update_norm"],
            tree["loss_smoothing"],
            given.get("cost") or tree["cost"],
            tree["seed"],
            tree.get("norm_action", REFUSE),
            tree.get("averages", True),
            tree.get("max_examples", 0),
        )


def _made(table: Registry[type[T]], given: str | T, kind: type[T], name: str) -> T:
    """A stage from its name, or the object itself."""
    if isinstance(given, str):
        return table.find(given)()
    if not isinstance(given, kind):
        raise ConfigError(f"{name} = {given!r}: expected a name, or an object of a subclass of {kind.__name__}.")
    return given
