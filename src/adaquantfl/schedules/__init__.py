"""Schedules: the server decides s for each round. `adaquant` is the paper's rule."""

from .adaquant import ROUNDINGS, AdaQuant
from .base import Schedule, ScheduleState
from .fixed import Fixed, FullPrecision

__all__ = ["ROUNDINGS", "AdaQuant", "Fixed", "FullPrecision", "Schedule", "ScheduleState"]
