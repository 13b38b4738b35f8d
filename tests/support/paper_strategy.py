"""The strategy with the paper's rule and the exact downlink, which most tests know by hand."""

from __future__ import annotations

from typing import Any

from flwr.serverapp.strategy import Strategy

import adaquantfl as aq
from adaquantfl.flower import AdaQuantStrategy


def paper_strategy(strategy: Strategy, **settings: Any) -> AdaQuantStrategy:
    """AdaQuantStrategy with other defaults than its own; tests/flower/test_default.py is about those."""
    return AdaQuantStrategy(strategy, **{"rule": aq.AdaQuant(s0=2), "downlink": "exact", **settings})
