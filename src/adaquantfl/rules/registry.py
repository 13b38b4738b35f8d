"""The rules by name: how a configuration makes one, where each comes from, and how a written-down one is read back.

Another package brings a rule, a subclass of `Rule` with a name, by an entry point of the group `adaquantfl.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import open_registry
from ..errors import RuleError
from ..open_registry import Registry, named_class
from .adaquant import AdaQuant
from .auto import Auto
from .base import Rule
from .cosine import Cosine
from .cost_aware import CostAware
from .dadaquant import DAdaQuant
from .fixed import Fixed, FullPrecision
from .resolution import FedDQ, FixedStep
from .undo import Undo

_HONIG = "Honig, Zhao, Mullins: DAdaQuant, ICML 2022"
_JHUNJHUNWALA = "Jhunjhunwala, Gadhikar, Joshi, Eldar: Adaptive Quantization of Model Updates, ICASSP 2021"


@dataclass(frozen=True)
class RuleEntry:
    """A rule that the key `method` may name. build: from the configuration. line, reference: for people. quantizer: the
    usual one."""

    build: Callable[[Any], Rule]
    line: str
    reference: str
    quantizer: str = Rule.usual_quantizer


def _fixed(bits: int) -> RuleEntry:
    # Not a lambda in a loop: each has its own bits.
    return RuleEntry(lambda c: Fixed(bits), f"s = {2**bits - 1} in every round", "Alistarh et al.: QSGD, NeurIPS 2017")


BASELINES = {f"{bits}bit": bits for bits in range(1, 17)}
_METHODS: dict[str, RuleEntry] = {
    "auto": RuleEntry(
        Auto.of_config,
        "ours: the coarsest levels whose noise training does not notice",
        "docs/theory.md",
        Auto.usual_quantizer,
    ),
    "adaquant": RuleEntry(
        lambda c: AdaQuant(c.s0, c.interval, c.guard, c.rounding),
        "the paper's: s grows with the square root of how far the loss has fallen",
        _JHUNJHUNWALA,
    ),
    "cost-aware": RuleEntry(
        lambda c: CostAware(
            c.rule_s0 or CostAware.s0,
            c.survey_every,
            c.repair,
            c.harm,
            c.undo,
            c.delay,
        ),
        "ours: the most progress per byte, from what a round really costs and harms",
        "docs/theory.md",
    ),
    "dadaquant": RuleEntry(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience), "s doubles on a plateau, and follows the clients' data", _HONIG
    ),
    "dadaquant-time": RuleEntry(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience, clients=False), "s doubles on a plateau of the loss", _HONIG
    ),
    "dadaquant-clients": RuleEntry(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience, time=False),
        "the same s in every round, more for clients with more data",
        _HONIG,
    ),
    "feddq": RuleEntry(
        lambda c: FedDQ(c.resolution),
        "each client takes the bits that its update's range needs; for norm = linf",
        "Qu, Song, Tsui: FedDQ, 2022",
    ),
    "fixed-step": RuleEntry(
        lambda c: FixedStep(c.resolution), "levels lie equally far apart in every round", "a baseline of ours"
    ),
    "constant": RuleEntry(
        lambda c: Cosine(c.rule_s0 or 1, c.rule_s0 or 1, c.rounds), "s = rule_s0 in every round", "a baseline of ours"
    ),
    "cosine": RuleEntry(
        lambda c: Cosine(c.rule_s0 or 1, c.s_end, c.rounds), "s rises along half a cosine", "a baseline of ours"
    ),
    **{name: _fixed(bits) for name, bits in BASELINES.items()},
    "fp32": RuleEntry(lambda c: FullPrecision(), "float32, not quantized", "McMahan et al.: FedAvg, AISTATS 2017"),
}
_OURS = (AdaQuant, Auto, Cosine, CostAware, DAdaQuant, FedDQ, Fixed, FixedStep, FullPrecision, Undo)
RULES: Registry[type[Rule]] = Registry(
    "rule", "adaquantfl.rules", lambda: _OURS, named_class(Rule, RuleError), RuleError
)


def methods() -> Mapping[str, RuleEntry]:
    """Every method by name: ours first, then the rules of other packages, which are made without settings."""
    found, ours = dict(_METHODS), {rule.name for rule in _OURS}
    for name in RULES.names():
        if name not in ours and name not in found:
            rule = RULES.find(name)
            line = (rule.__doc__ or "").strip().partition("\n")[0]
            found[name] = RuleEntry(
                rule.of_config, line, f"{rule.__module__}.{rule.__qualname__}", rule.usual_quantizer
            )
    return found


def find(name: str) -> type[Rule]:
    """The class of a rule by its own name, as `describe` writes it down.

    >>> find("adaquant").__name__
    'AdaQuant'
    """
    return RULES.find(name)


def register(rule: type[Rule]) -> type[Rule]:
    """Make a rule of your own known by its name: states that name it can be read back, and clients can choose by it.

    >>> class Often(AdaQuant):
    ...     name = "often"
    >>> register(Often) is find("often")
    True
    """
    return RULES.register(rule)


def describe(rule: Rule) -> dict[str, Any]:
    """A rule as plain values: its name and its settings.

    >>> describe(AdaQuant(s0=4))
    {'name': 'adaquant', 'settings': {'s0': 4, 'interval': 16.0, 'guard': True, 'rounding': 'nearest'}}
    """
    if isinstance(rule, Undo):
        return {"name": rule.name, "settings": {"rule": describe(rule.rule), "times": rule.times}}
    return open_registry.describe(RULES, rule)


def from_description(description: Mapping[str, Any]) -> Rule:
    """The way back.

    >>> from_description(describe(Fixed(bits=3)))
    Fixed(bits=3)
    >>> from_description(describe(Undo(Fixed(bits=3)))).rule
    Fixed(bits=3)
    """
    if description["name"] == Undo.name:
        return Undo(from_description(description["settings"]["rule"]), description["settings"]["times"])
    return open_registry.rebuild(RULES, description, "rule")
