"""Schedules: the server decides s for each round. `adaquant` is the paper's rule."""

from .adaquant import ROUNDINGS, AdaQuant
from .base import Schedule, ScheduleState, Survey
from .cosine import Cosine
from .cost_aware import CostAware
from .dadaquant import DAdaQuant
from .fixed import Fixed, FullPrecision
from .resolution import FedDQ, FixedStep
from .smoothed import SmoothedAdaQuant

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
    "Schedule",
    "ScheduleState",
    "SmoothedAdaQuant",
    "Survey",
]
