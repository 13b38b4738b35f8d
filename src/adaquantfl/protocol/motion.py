"""What the model's last steps say about training, for rules that decide how much noise and delay it bears.

The downlink knows exactly by how much the clients' model differs from the server's, so it can watch how the next update
u answers to that difference:

- *gain*: the fraction of what was left out that u asks for again. If training continues in the same direction, u still
  points along the part that was sent and the part that was left out, but along the sent part by the gain less:

      gain = <u, left out> / |left out|^2 - <u, sent> / |sent|^2

  The second term is 0 where the part that was left out is random.
  With a gain near 1 the model gets twice what comes late, and training swings.
- *repair*: the fraction of random noise that one round undoes, <u, e> / |e|^2 for an unbiased error e of the downlink.
  It is the mean of eta h over all directions, and far below the gain. One round's figure has the variance
  |u|^2 / (d |e|^2), so rounds are weighted by |e|^2 / (|u|^2 + |e|^2). The standard error of their mean is added, so
  that the figure starts high and falls as evidence comes in. Evidence ages by 5 % per round.
- *persistence*: the mean cosine between a step and the steps of about ten rounds before it, the noise of the uplink
  taken out. The last step is skipped: in sharp directions each step undoes a part of the one before. The figure starts
  low and rises as evidence comes in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..quantizers.vectors import dot, energy
from ..rules import Energies, Motion
from .arrays import Vector

ELEMENTS = 2**16  # that gain and persistence are measured on, spread over the model
_GAIN_MEMORY, _REPAIR_MEMORY, _PERSISTENCE_MEMORY = 0.8, 0.95, 0.9  # of the sums of earlier rounds
_DIRECTION_MEMORY = 0.9
_LEAST = 1e-3  # of the last change's energy: a round with a smaller update says nothing
_SAME_STEP = 0.01  # a step whose energy differs by more from that of the clients' mean is not their mean


def begin() -> dict[str, Any]:
    """Return what is kept before the first round."""
    nothing = np.zeros(0, dtype=np.float32)
    return {
        "sent": nothing,  # the part of the last change that was sent
        "random": False,  # whether what it left out is unbiased noise
        "mean": True,  # whether the last step was the mean of the clients' updates
        "gain": [0.0] * 4,  # the sums of the formula
        "repair": [0.0] * 3,  # sums of weight * figure, of weight, and of weight^2 * variance
        "persistence": [0.0] * 2,  # sums of weight * cosine, weight
        "direction": nothing,  # the mean of the steps, each divided by its length
        "direction_before": nothing,  # the same without the last one
        "steps": 0,
    }


def check(state: Mapping[str, Any], dimension: int) -> None:
    """Raise a ValueError where the vectors of a state are not those of a model of d elements."""
    sizes = {0, len(_some(np.empty(dimension, dtype=np.bool_)))}
    for name in ("sent", "direction", "direction_before"):
        if state[name].dtype != np.float32 or state[name].ndim != 1 or len(state[name]) not in sizes:
            raise ValueError(f"{name!r} has {state[name].size} elements of {state[name].dtype}")


def after(state: Mapping[str, Any], update: Vector, left: Vector, energies: Energies | None) -> dict[str, Any]:
    """Return what is kept after a round. left: what clients lacked when they trained for it."""
    u, e = _some(update), _some(left)
    found = {**state, "gain": _gain(state, u, e)}
    if energies is None or not energies.signal > 0:
        return found
    whole = energy(update)
    found["mean"] = abs(whole - energies.step) <= _SAME_STEP * energies.step
    if not found["mean"]:  # momentum, Adam: its noise is not the clients'
        return {**found, "repair": [0.0] * 3}
    total, weight, variance = (
        _REPAIR_MEMORY**power * one for power, one in zip((1, 1, 2), state["repair"], strict=True)
    )
    if state["random"] and whole > _LEAST * (square := energy(left)):
        both = whole + square  # dot is of all elements: the more, the smaller the variance
        total, weight = total + dot(update, left) / both, weight + square / both
        variance += whole * square / both**2 / len(update)
    found["repair"] = [total, weight, variance]
    unit = u / np.float32(math.sqrt(energies.signal))
    direction, before, steps = state["direction"], state["direction_before"], state["steps"] + 1
    if len(before):
        cosine = dot(unit, before) * len(update) / len(u)
        total, weight = state["persistence"]
        found["persistence"] = [_PERSISTENCE_MEMORY * total + cosine, _PERSISTENCE_MEMORY * weight + 1]
    share = np.float32(max(1 - _DIRECTION_MEMORY, 1 / max(steps, 1)))
    new = direction + share * (unit - direction) if len(direction) else unit
    return {**found, "direction": new, "direction_before": direction, "steps": steps}


def sent(old: Vector, new: Vector) -> Vector:
    """Return the part of a change that is sent, as much of it as the next round's `after` looks at."""
    return _some(new) - _some(old)


def of(state: Mapping[str, Any]) -> Motion:
    """Return what has been measured so far.

    >>> of({**begin(), "gain": [0.5, 1.0, 0.2, 1.0]})
    Motion(gain=0.3, repair=None, persistence=None, mean=True)
    """
    again, left, onward, sent = state["gain"]
    total, weight, variance = state["repair"]
    cosines, rounds = state["persistence"]
    return Motion(
        gain=again / left - (onward / sent if sent > 0 else 0.0) if left > 0 else None,
        repair=max(total, 0.0) / weight + math.sqrt(variance) / weight if weight else None,
        persistence=min(max(cosines / rounds * (1 - 1 / max(state["steps"], 1)), 0.0), 1.0) if rounds else None,
        mean=bool(state["mean"]),
    )


def _gain(state: Mapping[str, Any], u: Vector, left: Vector) -> list[float]:
    """The sums of the gain's formula after a round."""
    before, found = state["sent"], list[float](state["gain"])
    if len(before):
        now = np.array([dot(u, left), dot(left, left), dot(u, before), dot(before, before)])
        asked, change = dot(u, u), float(now[1] + now[3])
        if state["random"]:  # noise points nowhere by itself, and it is in the sent part too, with the other sign
            now[2:] = 0.0
        if asked > _LEAST * change > 0:
            found = (_GAIN_MEMORY * np.array(found) + now / (asked + change)).tolist()  # no round outweighs the others
    return found


def _some(values: Vector) -> Vector:
    return values[:: -(-len(values) // ELEMENTS) | 1]  # odd, so that it does not stay in some columns of a matrix
