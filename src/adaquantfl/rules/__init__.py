"""Rules: the server decides s for each round and whether a round counts. `adaquant` is the paper's rule."""

from .adaquant import ROUNDINGS, AdaQuant
from .auto import Auto
from .base import Energies, Mixing, Rule, RuleState, Survey, Verdict
from .cosine import Cosine
from .cost_aware import CostAware
from .dadaquant import DAdaQuant
from .fixed import Fixed, FullPrecision
from .resolution import FedDQ, FixedStep
from .undo import Undo

__all__ = [
    "ROUNDINGS",
    "AdaQuant",
    "Auto",
    "Cosine",
    "CostAware",
    "DAdaQuant",
    "Energies",
    "FedDQ",
    "Fixed",
    "FixedStep",
    "FullPrecision",
    "Mixing",
    "Rule",
    "RuleState",
    "Survey",
    "Undo",
    "Verdict",
]
