"""The gain of a round: the share of what the model still lacks that the next round's update asks for.

A downlink that leaves a part of the model's change for later needs it. With a small gain the clients hardly notice that
the part is missing. With a gain near 1 they ask for all of it again in the next round, and the model gets it twice.
Training then swings, and with long delays it diverges.

One round tells: a part of the change was sent, and a part was left out. If training continues in the same direction,
the next update u still points along both parts, but along the sent part by the gain less:

    gain = <u, left out> / |left out|^2 - <u, sent> / |sent|^2

averaged over some rounds. On a quadratic with curvature h the gain of one step is eta h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .arrays import Vector

ELEMENTS = 2**16  # that it is measured on, spread over the model
_MEMORY = 0.8  # of the sums of earlier rounds
_LEAST = 1e-3  # of the last change's energy: a round with a smaller update says nothing


def begin() -> dict[str, Any]:
    """What is kept before the first round: the sent part of the last change, and the sums of the formula."""
    return {"sent": np.zeros(0, dtype=np.float32), "sums": [0.0, 0.0, 0.0, 0.0]}


def sums(state: Mapping[str, Any], update: Vector, left: Vector) -> list[float]:
    """The sums of the formula after a round. left: what was left out before it."""
    before, u, r, found = state["sent"], _some(update), _some(left), list[float](state["sums"])
    if len(before):
        now = np.array([_dot(u, r), _dot(r, r), _dot(u, before), _dot(before, before)])
        asked, change = _dot(u, u), float(now[1] + now[3])
        if asked > _LEAST * change > 0:
            found = (_MEMORY * np.array(found) + now / (asked + change)).tolist()  # no round outweighs the others
    return found


def sent(old: Vector, new: Vector) -> Vector:
    """The part of a change that is sent, as much of it as the next round's `sums` look at."""
    return _some(new) - _some(old)


def of(state: Mapping[str, Any]) -> float | None:
    """The gain; None where nothing was left out so far.

    >>> of({"sums": [0.5, 1.0, 0.2, 1.0]})
    0.3
    """
    again, left, onward, sent = state["sums"]
    return again / left - onward / sent if left > 0 and sent > 0 else None


def _some(values: Vector) -> Vector:
    return values[:: -(-len(values) // ELEMENTS) | 1]  # odd, so that it does not stay in some columns of a matrix


def _dot(a: Vector, b: Vector) -> float:
    """Without BLAS, whose sums depend on the number of threads."""
    return float(np.sum(np.multiply(a, b, dtype=np.float64)))
