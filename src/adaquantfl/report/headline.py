"""The sentence at the top of a report: which method sent the least, as far as the evaluations show it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..runs.records import RunRecord, differing_settings, group_runs
from .tables import EXPERIMENT, Table, amount, bits_table, times, told_apart

_MEASURE, _WHAT = "wire_bytes_up", "uplink of all clients"


def headline(runs: Sequence[RunRecord]) -> str:
    """Which method sent the least to the lowest loss that can be compared, and how the others did.

    The loss is the lowest that two methods reached with every seed, AdaQuantFL being one of them where it takes part.
    """
    if clashing := [key for key in differing_settings(runs) if key in EXPERIMENT]:
        return f"These runs differ in their {' and '.join(clashing)}, so their bits are not compared here."
    groups = group_runs(runs)
    table = bits_table(runs, measure=_MEASURE)
    ours = [name for name, group in groups.items() if group[0].method == "adaquant"]
    reached = {level: _complete(table, place) for place, level in enumerate(table.levels)}
    compared = [level for level, sent in reached.items() if len(sent) > 1 and (not ours or set(ours) & set(sent))]
    if not compared:
        return _nothing_to_compare(reached)
    return _verdict(groups, min(compared), reached, ours)


def _verdict(
    groups: Mapping[str, Sequence[RunRecord]],
    level: float,
    reached: Mapping[float, Mapping[str, float]],
    ours: Sequence[str],
) -> str:
    """The headline at one level. It claims only what the evaluations show.

    A method reaches a level somewhere between two evaluations. It certainly sent less than another one if it was seen
    at the level before the other one had sent as much at its last evaluation above the level.
    """
    sent = reached[level]
    cheapest = min(sent, key=lambda name: sent[name])
    before = {name: np.mean([run.before_reaching(level, _MEASURE) for run in groups[name]]) for name in sent}
    unsure = [name for name in sent if name != cheapest and before[name] < sent[cheapest]]
    seeds = f", mean of {len(groups[cheapest])} seeds" if len(groups[cheapest]) > 1 else ""
    if unsure:
        ranges = [f"{name} {_bytes(before[name])} to {_bytes(sent[name])}" for name in (cheapest, *unsure)]
        often = all(run.setting("evaluate_every") == 1 for name in (cheapest, *unsure) for run in groups[name])
        advice = "" if often else " Evaluate more often (evaluate_every) to tell them apart."
        return (
            f"At loss {level:g} the evaluations do not show which method sent the least ({_WHAT}{seeds}): "
            f"{'; '.join(ranges)}. Each range is from the last evaluation above the loss to the first at or below it."
            f"{advice}"
        )
    mine = min((name for name in ours if name in sent), key=lambda name: sent[name], default=cheapest)
    other = mine if mine != cheapest else min((name for name in sent if name != cheapest), key=lambda name: sent[name])
    text = f"To loss {level:g}, {cheapest} sent the least: {_bytes(sent[cheapest])} ({_WHAT}{seeds}). "
    text += f"{other}{'' if other == mine else ', the next,'} sent {_bytes(sent[other])}"
    if told_apart(groups[cheapest], groups[other], level):
        text += f", {times(sent[other] / sent[cheapest])} as much."
    else:
        text += ". Both were first seen there at the same evaluation, so that no ratio is given."
    if (lowest := min(lower for lower, those in reached.items() if those)) < level:
        text += f" Only {' and '.join(sorted(reached[lowest]))} reached loss {lowest:g}."
    return text


def _complete(table: Table, place: int) -> dict[str, float]:
    """What each method sent to one level on average, of those that reached it with every seed."""
    cells = {row.method: row.cells[place] for row in table.rows}
    return {name: cell.mean for name, cell in cells.items() if cell.mean is not None and cell.complete}


def _nothing_to_compare(reached: dict[float, dict[str, float]]) -> str:
    levels = [level for level, sent in reached.items() if sent]
    if not levels:
        return "No method here has brought its training loss down to a round level yet."
    sent = reached[min(levels)]
    name = min(sent, key=lambda one: sent[one])
    return f"Only {name} reached loss {min(levels):g}, in {_bytes(sent[name])} of uplink."


def _bytes(value: float | np.floating[Any]) -> str:
    return amount(float(value), "B")
