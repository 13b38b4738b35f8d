"""The rule `cost-aware` with late updates from the third round on: short runs then have both kinds of rounds."""

from __future__ import annotations

import pytest

from adaquantfl.rules import cost_aware

FROM = 3  # the first late round


def soon(monkeypatch: pytest.MonkeyPatch, last: int = 1000) -> None:
    """Change the rule's constants. last: the last late round."""
    later = cost_aware.CostAware._later
    monkeypatch.setattr(cost_aware.CostAware, "_later", lambda rule, k: later(rule, k) if k <= last else 0.0)
    changes = {"FIRST_ROUNDS": FROM, "LEAST_DRIFTS": 1, "MOST_EQUAL_DELAY": 1e9, "MOST_DRIFT": 1e9}
    for name, value in changes.items():
        monkeypatch.setattr(cost_aware, name, value)
