"""Rules: the server decides the levels of each round and whether a round counts. `adaquant` is the paper's rule."""

from .adaquant import AdaQuant
from .auto import Auto
from .base import Energies, Motion, Need, Plan, Report, Rule, Seen, Verdict
from .base import State as State
from .fixed import Fixed, FullPrecision
from .rivals import DAdaQuant, FedDQ

__all__ = [
    "AdaQuant",
    "Auto",
    "DAdaQuant",
    "Energies",
    "FedDQ",
    "Fixed",
    "FullPrecision",
    "Motion",
    "Need",
    "Plan",
    "Report",
    "Rule",
    "Seen",
    "Verdict",
]
