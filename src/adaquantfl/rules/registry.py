"""The rules by name.

Another package brings a rule, a subclass of `Rule` with a name, by an entry point of the group `adaquantfl.rules`.
"""

from __future__ import annotations

from typing import Any

from ..errors import RuleError
from ..names import unknown
from ..open_registry import Registry, named_class
from .adaquant import AdaQuant
from .auto import Auto
from .base import Rule
from .fixed import Fixed, FullPrecision
from .rivals import DAdaQuant, FedDQ

BASELINES = {f"{bits}bit": bits for bits in range(1, 17)}
RULES: Registry[type[Rule]] = Registry(
    "rule",
    "adaquantfl.rules",
    lambda: (Auto, AdaQuant, DAdaQuant, FedDQ, Fixed, FullPrecision),
    named_class(Rule, RuleError),
    RuleError,
)


def methods() -> dict[str, tuple[type[Rule], dict[str, Any]]]:
    """Return the class of every rule by name, and the settings that the name stands for.

    >>> methods()["4bit"]
    (<class 'adaquantfl.rules.fixed.Fixed'>, {'bits': 4})
    """
    fixed = {name: (Fixed, {"bits": bits}) for name, bits in BASELINES.items()}
    return {**{name: (RULES.find(name), {}) for name in RULES.names()}, **fixed}


def make(name: str) -> Rule:
    """Return the rule of this name.

    >>> make("adaquant")
    AdaQuant(s0=2, interval=16.0, guard=True, rounding='power', stall=0)
    >>> make("4bit")
    Fixed(bits=4, s=None)
    """
    known = methods()
    if name not in known:
        raise RuleError(RULES.broken(name) or unknown("rule", name, known))
    rule, settings = known[name]
    return rule(**settings)
