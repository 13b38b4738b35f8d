"""Schedules: the server decides s for each round. `adaquant` is the paper's rule."""

from .adaquant import AdaQuant
from .base import Schedule, ScheduleState
from .fixed import Fixed, FullPrecision

__all__ = ["AdaQuant", "Fixed", "FullPrecision", "Schedule", "ScheduleState"]
