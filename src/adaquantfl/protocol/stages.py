"""What a server is put together from: the rule and one object for each stage of a round. None knows another's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ..errors import ConfigError
from ..names import unknown
from ..open_registry import Registry, describe, rebuild
from ..quantizers import registry as quantizers
from ..quantizers.base import Quantizer
from ..quantizers.streams import stream_key
from ..rules import Need, Plan, Rule, Seen
from ..rules import registry as rules
from ..rules.checks import planned, started, wrong
from .cohort import Cohort
from .downlink import DOWNLINKS, Whole
from .limits import CLIP, REFUSE, ExamplesLimit, NormLimit
from .step import STEPS, ServerStep
from .uplink import Uplink

_TABLES: dict[str, Registry[Any]] = {"rule": rules.RULES, "downlink": DOWNLINKS, "step": STEPS}
_PLAIN = ("max_update_norm", "norm_action", "max_examples", "loss_smoothing", "undo", "seed", "averages")


class Stages:
    """The checked settings of a server; `aq.Server` says what each of them means."""

    def __init__(
        self,
        rule: Rule | str = "auto",
        quantizer: str | Quantizer | None = "",
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
    ) -> None:
        if not (_is_number(loss_smoothing) and 0 <= loss_smoothing < 1):
            raise ConfigError(f"loss_smoothing = {loss_smoothing!r}: it is a number from 0 to below 1.")
        if not (_is_number(undo) and (undo == 0 or undo > 1)):
            raise ConfigError(f"undo = {undo!r}: expected a number above 1, of times the usual loss, or 0 for never.")
        if not isinstance(averages, bool | None):
            raise ConfigError(f"averages = {averages!r}: expected True, False or None.")
        if cohort is not None and min_clients:
            raise ConfigError("min_clients and cohort are both given: set Cohort(least=...) instead.")
        stream_key(seed, 0, 0)  # refuses what is no seed
        self.seed, self.undo, self.loss_smoothing = seed, undo, loss_smoothing
        self.max_update_norm, self.norm_action, self.max_examples = max_update_norm, norm_action, max_examples
        if norm_action not in (REFUSE, CLIP):
            raise ConfigError(unknown("norm_action", norm_action, (REFUSE, CLIP)))
        self.limit = replace(NormLimit.of("max_update_norm", max_update_norm), clip=norm_action == CLIP)
        self.examples_limit = ExamplesLimit.of("max_examples", max_examples)
        if self.examples_limit.absolute < 1:
            raise ConfigError(f"max_examples = {max_examples}: it is a number from 1, or 0 for no limit.")
        self.cohort = cohort or Cohort(least=min_clients)
        self.rule: Rule = _made("rule", rules.make(rule) if isinstance(rule, str) else rule, Rule)
        self.step: ServerStep = _made("step", step, ServerStep)
        self.averages = self.step.averages if averages is None else averages
        # The step is the mean of the updates and nothing else, and no limit that somebody chose bounds their noise.
        self.plain = self.step.is_sum and averages is None and self.limit.absolute == math.inf
        kind = quantizers.find(quantizer) if quantizer else None
        self.uplink = Uplink(kind, norm, scope, codec, sparsity, feedback)
        plan = first_plan(self.rule, self.uplink, self.averages)
        self.uplink.check_first(plan, self.rule.name)
        if plan.downlink and plan.downlink not in DOWNLINKS.names():
            raise wrong(self.rule.plan, plan.downlink, f"one of {', '.join(DOWNLINKS.names())}", "as downlink ")
        self.downlink: Whole = _made("downlink", downlink or plan.downlink or "exact", Whole)

    @property
    def downlink_words(self) -> str:
        """What errors call the downlink, which may be the user's own."""
        return f"The downlink {self.downlink.name!r}"

    @property
    def negative_loss(self) -> bool:
        """Whether a loss below 0 makes sense: rules that divide by losses refuse it."""
        return Need.LOSS not in self.rule.needs

    def describe(self) -> dict[str, Any]:
        """Return the settings as a plain tree."""
        quantizer = self.uplink.quantizer
        return {
            **{name: describe(table, getattr(self, name)) for name, table in _TABLES.items()},
            **{name: getattr(self, name) for name in _PLAIN},
            "uplink": {**vars(self.uplink), "quantizer": quantizer and quantizer.name},
            "cohort": {**asdict(self.cohort), "examples": list(self.cohort.examples)},
        }

    @staticmethod
    def of_description(tree: Mapping[str, Any], given: Mapping[str, Any]) -> Stages:
        """Restore from `describe`. given: objects that it cannot hold. CheckpointError where one is missing."""
        if others := set(given) - {*_TABLES, "quantizer"}:
            raise ConfigError(f"{others.pop()} cannot be given: it is part of the state.")
        made = {name: given.get(name) or rebuild(table, tree[name], name) for name, table in _TABLES.items()}
        return Stages(
            **made,
            **{**tree["uplink"], "quantizer": given.get("quantizer", tree["uplink"]["quantizer"])},
            **{name: tree[name] for name in _PLAIN},
            cohort=Cohort(**{**tree["cohort"], "examples": tuple(tree["cohort"]["examples"])}),
        )


def first_plan(rule: Rule, uplink: Uplink = Uplink(), averages: bool = True) -> Plan:  # noqa: B008 # it is frozen
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


def _made(name: str, given: Any, kind: type) -> Any:
    """A stage from its name, or the object itself."""
    if isinstance(given, str):
        return _TABLES[name].find(given)()
    if not isinstance(given, kind):
        raise ConfigError(f"{name} = {given!r}: expected a name, or an object of a subclass of {kind.__name__}.")
    return given
