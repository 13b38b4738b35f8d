"""Rules: the server decides s for each round and whether a round counts. `adaquant` is the paper's rule."""

from .adaquant import ROUNDINGS, AdaQuant
from .base import Rule, RuleState, Survey, Verdict
from .cosine import Cosine
from .cost_aware import CostAware
from .dadaquant import DAdaQuant
from .fixed import Fixed, FullPrecision
from .resolution import FedDQ, FixedStep

__all__ = [
    "ROUNDINGS",
    "AdaQuant",
    "Cosine",
    "CostAware",
    "DAdaQuant",
    "FedDQ",
    "Fixed",
    "FixedStep",
    "FullPrecision",
    "Rule",
    "RuleState",
    "Survey",
    "Verdict",
]
