"""Watching the losses of the rounds: a round whose noise made training diverge is rolled back.

The server does so for every rule where `undo` is set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LOSS_AVERAGE_WEIGHT = 0.3  # how much the last round counts in what a round's loss usually is
CAUTION_LEFT = 0.9  # of the caution after a round that was rolled back, one round later
MOST_CAUTION = 64.0
MOST_ROLLED_BACK = 6  # rounds in a row: with 64 times the levels it is not the noise
WATCHED: Mapping[str, Any] = {"usual": None, "caution": 1.0, "undone": 0}  # what is remembered, at the start


def watched(memory: Mapping[str, Any], round_loss: float, undo: float) -> tuple[dict[str, Any], bool]:
    """Return the memory after a round with this loss, and whether the round is to be rolled back.

    It is if the loss is not finite, or more than `undo` times the usual one; never in the first round.

    >>> memory, _ = watched(WATCHED, 2.0, undo=5)
    >>> watched(memory, 11.0, undo=5)
    ({'usual': 2.0, 'caution': 2.0, 'undone': 1}, True)
    """
    usual, undone = memory["usual"], memory["undone"]
    too_high = not math.isfinite(round_loss) or (usual is not None and 0 < undo * usual < round_loss)
    if too_high and usual is not None and undone < MOST_ROLLED_BACK:
        return {**memory, "caution": min(2 * memory["caution"], MOST_CAUTION), "undone": undone + 1}, True
    if math.isfinite(round_loss):
        usual = round_loss if usual is None else usual + LOSS_AVERAGE_WEIGHT * (round_loss - usual)
    return {**memory, "usual": usual, "undone": 0}, False


def relaxed(caution: float) -> float:
    """Return the caution one round later.

    >>> relaxed(2.0)
    1.9
    """
    return 1 + CAUTION_LEFT * (caution - 1)
