"""What a server is put together from: the rule and one object for each stage of a round. None knows another's name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from ..errors import ConfigError
from ..open_registry import Registry, describe, rebuild
from ..quantizers import registry as quantizers
from ..quantizers.base import Quantizer
from ..quantizers.streams import stream_key
from ..rules import Motion, Need, Plan, Rule, Seen, State
from ..rules import registry as rules
from ..rules.checks import planned, started, wrong
from .cohort import Cohort
from .downlink import DOWNLINKS, Whole
from .limits import REFUSE, ExamplesLimit, NormLimit
from .messages import Order
from .step import STEPS, ServerStep
from .uplink import Uplink

T = TypeVar("T")
_PLAIN = ("max_update_norm", "norm_action", "max_examples", "loss_smoothing", "undo", "seed", "averages")


@dataclass(frozen=True)
class Stages:
    """The checked settings of a server; `aq.Server` says what each of them means."""

    rule: Rule
    uplink: Uplink
    downlink: Whole
    step: ServerStep
    cohort: Cohort
    max_update_norm: float | str = 0.0
    norm_action: str = REFUSE
    max_examples: float | str = 0
    loss_smoothing: float = 0.0
    undo: float = 0.0
    seed: int = 0
    averages: bool = True

    def __post_init__(self) -> None:
        if not (_is_number(self.loss_smoothing) and 0 <= self.loss_smoothing < 1):
            raise ConfigError(f"loss_smoothing = {self.loss_smoothing!r}: it is a number from 0 to below 1.")
        if not (_is_number(self.undo) and (self.undo == 0 or self.undo > 1)):
            raise ConfigError(
                f"undo = {self.undo!r}: expected a number above 1, of times the usual loss, or 0 for never."
            )
        if self.undo and Need.EARLIER in self.rule.needs:
            raise ConfigError(f"The rule {self.rule.name!r} rolls rounds back by itself: use it without undo.")
        stream_key(self.seed, 0, 0)  # refuses what is no seed
        if not isinstance(self.averages, bool):
            raise ConfigError(f"averages = {self.averages!r}: expected True or False.")
        self.limit, self.examples_limit  # noqa: B018  # they refuse what is no limit

    @staticmethod
    def of(
        rule: Rule | str = "auto",
        quantizer: str | Quantizer = "",
        scope: str | int = "tensor",
        downlink: str | Whole = "",
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
        undo: float = 0.0,
        averages: bool | None = None,
    ) -> Stages:
        """Return the stages that these names or objects stand for, checked."""
        rule = rules.make(rule) if isinstance(rule, str) else rule
        if not isinstance(rule, Rule):
            raise ConfigError(f"rule = {rule!r}: expected a name, or a rule such as AdaQuant(s0=2) or Fixed(bits=4).")
        uplink = Uplink(quantizers.find(quantizer) if quantizer else None, norm, scope, codec, sparsity, feedback)
        if cohort is not None and min_clients:
            raise ConfigError("min_clients and cohort are both given: set Cohort(least=...) instead.")
        made = _made(STEPS, step, ServerStep, "step")
        averages = made.averages if averages is None else averages
        plan = first_plan(rule, uplink, averages)
        uplink.check_first(plan, rule.name)
        if plan.downlink and plan.downlink not in DOWNLINKS.names():
            raise wrong(rule.plan, plan.downlink, f"one of {', '.join(DOWNLINKS.names())}", "as downlink ")
        return Stages(
            rule,
            uplink,
            _made(DOWNLINKS, downlink or plan.downlink or "exact", Whole, "downlink"),
            made,
            cohort or Cohort(least=min_clients),
            max_update_norm,
            norm_action,
            max_examples,
            loss_smoothing,
            undo,
            seed,
            averages,
        )

    @cached_property
    def limit(self) -> NormLimit:
        return NormLimit.of(self.max_update_norm, self.norm_action)

    @cached_property
    def examples_limit(self) -> ExamplesLimit:
        return ExamplesLimit.of(self.max_examples)

    @property
    def downlink_words(self) -> str:
        """What errors call the downlink, which may be the user's own."""
        return f"The downlink {self.downlink.name!r}"

    @property
    def rolls_back(self) -> bool:
        """Whether rounds may be rolled back, for which the server keeps the state before the present one."""
        return self.undo > 0 or Need.EARLIER in self.rule.needs

    @property
    def negative_loss(self) -> bool:
        """Whether a loss below 0 makes sense: rules that divide by losses refuse it."""
        return Need.LOSS not in self.rule.needs

    def wants_energies(self, plan: Plan, orders: Mapping[int, Order]) -> bool:
        """Whether the energies of a round are measured: its noise averages out, and the rule looks at them."""
        noise = plan.max_error is not None and not any(order.feedback for order in orders.values())
        return Need.ENERGIES in self.rule.needs and self.averages and noise

    def usable(self, loss: float | None) -> float | None:
        """The mean loss that clients told, where the rule can use it: a mean of 0 is a false one."""
        return loss if loss is None or loss > 0 or self.negative_loss else None

    def participation(self, clients: Collection[int], examples: Mapping[int, int]) -> float:
        """The share of all clients that these are. examples: of those that have answered in some round."""
        return len(clients) / max(len(self.cohort.examples), len({*examples, *clients}))

    def plan(
        self,
        rule: State,
        clients: Sequence[int],
        examples: Mapping[int, int],
        *,
        bits: float,
        dimension: int,
        loss: float | None,
        eta: float,
        motion: Motion | None,
    ) -> tuple[State, Plan]:
        """The rule's plan of a round with these clients. examples: of those that have answered in some round."""
        seen = Seen(
            bits=bits,
            dimension=dimension,
            loss=loss,
            eta=eta,
            weights=self.cohort.population(clients, examples),
            weights_squared=self.cohort.noise(clients, examples) ** 2,
            participation=self.participation(clients, examples),
            averages=self.averages,
            motion=motion,
            quantizer=self.uplink.quantizer,
            feedback=self.uplink.feedback,
        )
        after, plan = planned(self.rule, rule, seen, clients)
        self.uplink.check(plan, self.rule.name)
        return after, plan

    def describe(self) -> dict[str, Any]:
        """Return the settings as a plain tree."""
        uplink = {field.name: getattr(self.uplink, field.name) for field in fields(Uplink)}
        return {
            "rule": rules.describe(self.rule),
            "uplink": {**uplink, "quantizer": self.uplink.quantizer and self.uplink.quantizer.name},
            "downlink": describe(DOWNLINKS, self.downlink),
            "step": describe(STEPS, self.step),
            "cohort": {**asdict(self.cohort), "examples": list(self.cohort.examples)},
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @staticmethod
    def of_description(tree: Mapping[str, Any], given: Mapping[str, Any]) -> Stages:
        """Restore from `describe`. given: objects that it cannot hold. CheckpointError where one is missing."""
        if others := set(given) - {"rule", "quantizer", "downlink", "step"}:
            raise ConfigError(f"{others.pop()} cannot be given: it is part of the state.")
        quantizer = given.get("quantizer", tree["uplink"]["quantizer"])
        return Stages(
            rule=given.get("rule") or rules.from_description(tree["rule"]),
            uplink=Uplink(**{**tree["uplink"], "quantizer": quantizer and quantizers.find(quantizer)}),
            downlink=given.get("downlink") or rebuild(DOWNLINKS, tree["downlink"], "downlink"),
            step=given.get("step") or rebuild(STEPS, tree["step"], "step"),
            cohort=Cohort(**{**tree["cohort"], "examples": tuple(tree["cohort"]["examples"])}),
            **{name: tree[name] for name in _PLAIN},
        )


def first_plan(rule: Rule, uplink: Uplink, averages: bool) -> Plan:
    """Return what the rule would plan for a first round, to see what it wants before there is one."""
    seen = Seen(
        bits=0.0,
        dimension=1,
        loss=1.0,
        weights={0: 1.0},
        averages=averages,
        quantizer=uplink.quantizer,
        feedback=uplink.feedback,
    )
    return planned(rule, started(rule), seen)[1]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _made(table: Registry[type[T]], given: str | T, kind: type[T], name: str) -> T:
    """A stage from its name, or the object itself."""
    if isinstance(given, str):
        return table.find(given)()
    if not isinstance(given, kind):
        raise ConfigError(f"{name} = {given!r}: expected a name, or an object of a subclass of {kind.__name__}.")
    return given
