"""The rules by name, and how a written-down one is read back.

Another package brings a rule, a subclass of `Rule` with a name, by an entry point of the group `adaquantfl.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from .. import open_registry
from ..errors import RuleError
from ..names import unknown
from ..open_registry import Registry, named_class
from .adaquant import AdaQuant
from .auto import Auto
from .base import Rule
from .fixed import Fixed, FullPrecision
from .rivals import DAdaQuant, FedDQ

_QSGD = "Alistarh et al.: QSGD, NeurIPS 2017"
_HONIG = "Honig, Zhao, Mullins: DAdaQuant, ICML 2022"


@dataclass(frozen=True)
class RuleEntry:
    """A rule that a run may name.

    Attributes:
        rule: its class.
        line: what it does, for people.
        reference: where it comes from.
        settings: what the name stands for.
    """

    rule: type[Rule]
    line: str
    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)


BASELINES = {f"{bits}bit": bits for bits in range(1, 17)}
_METHODS: dict[str, RuleEntry] = {
    "auto": RuleEntry(Auto, "ours: the coarsest levels whose noise training does not notice", "docs/theory.md"),
    "adaquant": RuleEntry(
        AdaQuant,
        "the paper's: s grows with the square root of how far the loss has fallen",
        "Jhunjhunwala, Gadhikar, Joshi, Eldar: Adaptive Quantization of Model Updates, ICASSP 2021",
    ),
    "dadaquant": RuleEntry(DAdaQuant, "s doubles on a plateau, and follows the clients' data", _HONIG),
    "dadaquant-time": RuleEntry(DAdaQuant, "s doubles on a plateau of the loss", _HONIG, {"clients": False}),
    "dadaquant-clients": RuleEntry(
        DAdaQuant, "the same s in every round, more for clients with more data", _HONIG, {"time": False}
    ),
    "feddq": RuleEntry(
        FedDQ,
        "each client takes the bits that its update's range needs; for norm = linf",
        "Qu, Song, Tsui: FedDQ, 2022",
    ),
    "fixed": RuleEntry(Fixed, "the same number of levels in every round", _QSGD),
    **{
        name: RuleEntry(
            Fixed, f"s = {2**bits - 1} in every round", "Alistarh et al.: QSGD, NeurIPS 2017", {"bits": bits}
        )
        for name, bits in BASELINES.items()
    },
    "fp32": RuleEntry(FullPrecision, "float32, not quantized", "McMahan et al.: FedAvg, AISTATS 2017"),
}
_OURS = (AdaQuant, Auto, DAdaQuant, FedDQ, Fixed, FullPrecision)
RULES: Registry[type[Rule]] = Registry(
    "rule", "adaquantfl.rules", lambda: _OURS, named_class(Rule, RuleError), RuleError
)


def methods() -> Mapping[str, RuleEntry]:
    """Return every rule by name: ours first, then those of other packages."""
    found, ours = dict(_METHODS), {rule.name for rule in _OURS}
    for name in RULES.names():
        if name not in ours and name not in found:
            rule = RULES.find(name)
            line = (rule.__doc__ or "").strip().partition("\n")[0]
            found[name] = RuleEntry(rule, line, f"{rule.__module__}.{rule.__qualname__}")
    return found


def make(name: str, settings: Mapping[str, Any] | None = None) -> Rule:
    """Return the rule of this name with these settings, which are the fields of its class.

    >>> make("adaquant", {"s0": 4})
    AdaQuant(s0=4, interval=16.0, guard=True, rounding='power', stall=0)
    >>> make("4bit")
    Fixed(bits=4, s=None)
    """
    known = methods()
    if name not in known:
        raise RuleError(RULES.broken(name) or unknown("rule", name, known))
    entry = known[name]
    given = {**entry.settings, **(settings or {})}
    valid: list[str] = [one.name for one in fields(entry.rule)] if is_dataclass(entry.rule) else []
    for key in given:
        if key not in valid:
            raise RuleError(unknown(f"setting of the rule {name!r}", key, valid))
    return entry.rule(**given)


def find(name: str) -> type[Rule]:
    """Return the class of a rule by its own name, as `describe` writes it down.

    >>> find("adaquant").__name__
    'AdaQuant'
    """
    return RULES.find(name)


def register(rule: type[Rule]) -> type[Rule]:
    """Make a rule of your own known by its name, so that states that name it can be read back.

    >>> class Often(AdaQuant):
    ...     name = "often"
    >>> register(Often) is find("often")
    True
    """
    return RULES.register(rule)


def describe(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain values: its name and its settings.

    >>> describe(AdaQuant(s0=4))
    {'name': 'adaquant', 'settings': {'s0': 4, 'interval': 16.0, 'guard': True, 'rounding': 'power', 'stall': 0}}
    """
    return open_registry.describe(RULES, rule)


def from_description(description: Mapping[str, Any]) -> Rule:
    """Restore a rule from `describe`.

    >>> from_description(describe(Fixed(bits=3)))
    Fixed(bits=3, s=None)
    """
    return open_registry.rebuild(RULES, description, "rule")
