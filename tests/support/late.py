"""The rule `cost-aware` with late updates from the third round on: short runs then have both kinds of rounds."""

from __future__ import annotations

import pytest

from adaquantfl.rules import cost_aware

FROM = 3  # the first late round


def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the rule's constants."""
    changes = {"FIRST_ROUNDS": FROM, "LEAST_DRIFTS": 1, "MOST_EQUAL_DELAY": 1e9, "MOST_DRIFT": 1e9}
    for name, value in changes.items():
        monkeypatch.setattr(cost_aware, name, value)
