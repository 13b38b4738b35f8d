"""Checks that several rules share."""

from __future__ import annotations

import math

from ..errors import RuleError
from ..theory import MAX_LEVELS


def check_start(s0: float) -> None:
    """Refuse a number of levels that no rule can start with."""
    if isinstance(s0, bool) or not isinstance(s0, int | float) or not 0 < s0 <= MAX_LEVELS:
        raise RuleError(f"s0 = {s0!r}: the levels at the start are a number above 0, up to {MAX_LEVELS}.")


def check_loss(loss: float) -> float:
    """The loss at the start, by which rules divide."""
    if not math.isfinite(loss) or loss <= 0:
        raise RuleError(
            f"f(w_0) = {loss!r}: the rule divides by the loss at the start, which must be finite and above 0. "
            "Check the model's initialisation and the data."
        )
    return loss
