"""How far a client moved the arrays that are not quantized: each has a bound of its own, next to that of the norm."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median_low

import numpy as np

from . import bfloat16
from .arrays import EXACT, OTHER, QUANTIZED, Entry, Layout, Model

ARRAY_FACTOR = 100.0  # times the round's median: clients that train 100 times as long as others are still honest
Changes = Sequence[float]  # the l2 norm of the change of each such array, in the layout's order


def entries_of(layout: Layout) -> list[Entry]:
    """Return the arrays that are not quantized."""
    return [entry for entry in layout.entries if entry.kind != QUANTIZED and entry.size]


def changes_of(layout: Layout, old: Model, new: Model) -> list[float]:
    """How far each array moved; infinite where that is beyond float64. Only the parts that are not quantized count."""
    before, after = (dict(layout.read_others(one.others)) for one in (old, new))
    found, place = list[float](), 0
    with np.errstate(over="ignore"):
        for entry in layout.entries:
            if entry.kind == EXACT:
                here = slice(place, place := place + entry.size)
                pair = old.buffers[here], new.buffers[here]
            elif entry.kind == OTHER and entry.size:
                pair = before[entry], after[entry]
            else:
                continue
            a, b = (bfloat16.widened(values).astype(np.float64) for values in pair)
            found.append(float(np.linalg.norm(b - a)))
    return found


def float_changes(layout: Layout, changes: Changes) -> list[float]:
    """Those of floats that travel as they are, such as float64: the norm of an update counts them too."""
    pairs = zip(entries_of(layout), changes, strict=True)
    return [change for entry, change in pairs if entry.kind == OTHER and "float" in entry.dtype]


def far_off(layout: Layout, changes: Mapping[int, Changes], among: Collection[Changes] = ()) -> dict[int, str]:
    """Who moved an array by more than 100 times the round's median, and the reason. among: of further clients."""
    names = [entry.name for entry in entries_of(layout)]
    columns = list(zip(*changes.values(), *among, strict=True))
    middles = [median_low(column) for column in columns]
    reasons = {}
    for who, moved in changes.items():
        for name, change, middle in zip(names, moved, middles, strict=True):
            if not change <= ARRAY_FACTOR * middle:
                reasons[who] = (
                    f"its update has norm {change:g} in the array {name!r}, above {ARRAY_FACTOR:g} times the median of "
                    f"the round, {middle:g}."
                )
    return reasons
