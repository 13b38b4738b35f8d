"""The sentences at the top of a report: which method sent the least, as far as the evaluations show it."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..runs.columns import COLUMNS
from ..runs.records import RunRecord, differing_settings, group_runs
from .tables import EXPERIMENT, amount, bits_table, having, ratio

Reached = dict[float, dict[str, float]]  # loss -> method -> what it sent
_WHAT = {"wire_bytes_up": "uplink of all clients", "paper_bits": "uplink of one client by the paper's formula"}


def story(runs: Sequence[RunRecord]) -> list[str]:
    """Return what runs show in a few sentences: the paper's bits, the bytes of the uplink, and of both ways."""
    by_formula = having(runs, "paper_bits")
    told = [headline(by_formula, "paper_bits")] if len(group_runs(by_formula)) > 1 else []
    return [*told, headline(runs), *_both_ways(runs)]


def headline(runs: Sequence[RunRecord], measure: str = "wire_bytes_up") -> str:
    """Say which method sent the least to the lowest loss that can be compared, and how the others did.

    The loss is the lowest that two methods reached with every seed, AdaQuantFL being one of them where it takes part.
    """
    if clashing := _clashing(runs):
        return f"These runs differ in their {' and '.join(clashing)}, so their bits are not compared here."
    groups, reached, level = _compared(runs, measure)
    if level is not None:
        return _verdict(groups, level, reached, measure)
    if not (levels := [level for level, sent in reached.items() if sent]):
        return "No method here has brought its training loss down to a round level yet."
    name, value = min(reached[min(levels)].items(), key=lambda item: item[1])
    return f"Only {name} reached loss {min(levels):g}, in {_amount(value, measure)} of uplink."


def _both_ways(runs: Sequence[RunRecord]) -> list[str]:
    """Say which method sent and received the least together, and what float32 would have sent in as many rounds."""
    groups, reached, level = _compared(runs, "wire_bytes_up")
    if _clashing(runs) or level is None or not all(run.summary for run in runs):
        return []
    lines = {name: [line for run in groups[name] if (line := run.reached(level))] for name in reached[level]}
    bytes_of = {
        name: float(np.mean([line["wire_bytes_up"] + line["wire_bytes_down"] for line in found]))
        for name, found in lines.items()
    }
    least = min(bytes_of, key=lambda name: bytes_of[name])
    rounds = float(np.mean([line["round"] for line in lines[least]]))
    first = groups[least][0]
    dimension = (first.summary or {}).get("dimension")
    asked = int(first.setting("clients_per_round") or first.setting("clients"))
    others = [f"{name} {amount(value, 'B')}" for name, value in bytes_of.items() if name != least]
    text = f"Uplink and downlink together, {least} sent the least: {amount(bytes_of[least], 'B')} ({', '.join(others)})"
    if dimension is None or first.method == "fp32":
        return [f"{text}."]
    return [f"{text}; float32 sends {amount(8.0 * dimension * asked * rounds, 'B')} in its {rounds:.0f} rounds."]


def _clashing(runs: Sequence[RunRecord]) -> list[str]:
    return [key for key in differing_settings(runs) if key in EXPERIMENT]


def _compared(runs: Sequence[RunRecord], measure: str) -> tuple[dict[str, list[RunRecord]], Reached, float | None]:
    """The methods, what each of them sent on average to the losses that all of its seeds reached, and the loss to
    compare at: the lowest that two methods reached, AdaQuantFL being one of them where it takes part."""
    groups, table = group_runs(having(runs, measure)), bits_table(runs, measure=measure)
    reached = {
        level: {
            row.method: cell.mean for row in table.rows if (cell := row.cells[place]).complete and cell.mean is not None
        }
        for place, level in enumerate(table.levels)
    }
    ours = _ours(groups)
    compared = [level for level, sent in reached.items() if len(sent) > 1 and (not ours or ours & sent.keys())]
    return groups, reached, min(compared, default=None)


def _ours(groups: Mapping[str, Sequence[RunRecord]]) -> set[str]:
    return {name for name, group in groups.items() if group[0].method == "adaquant"}


def _verdict(
    groups: Mapping[str, Sequence[RunRecord]],
    level: float,
    reached: Reached,
    measure: str,
) -> str:
    """The headline at one level. It claims only what the evaluations show.

    A method reaches a level somewhere between two evaluations. It certainly sent less than another one if it was seen
    at the level before the other one had sent as much at its last evaluation above the level.
    """
    sent = reached[level]
    cheapest = min(sent, key=lambda name: sent[name])
    before = {
        name: float(np.mean([(run.crossing(level, measure) or (0.0,))[0] for run in groups[name]])) for name in sent
    }
    unsure = [name for name in sent if name != cheapest and before[name] < sent[cheapest]]
    seeds = f", mean of {len(groups[cheapest])} seeds" if len(groups[cheapest]) > 1 else ""
    if unsure:
        names = (cheapest, *unsure)
        ranges = [f"{name} {_amount(before[name], measure)} to {_amount(sent[name], measure)}" for name in names]
        often = all(run.setting("evaluate_every") == 1 for name in names for run in groups[name])
        advice = "" if often else " Evaluate more often (evaluate_every) to tell them apart."
        return (
            f"At loss {level:g} the evaluations do not show which method sent the least ({_WHAT[measure]}{seeds}): "
            f"{'; '.join(ranges)}. Each range is from the last evaluation above the loss to the first at or below it."
            f"{advice}"
        )
    mine = min((name for name in sorted(_ours(groups)) if name in sent), key=lambda name: sent[name], default=cheapest)
    other = mine if mine != cheapest else min((name for name in sent if name != cheapest), key=lambda name: sent[name])
    text = (
        f"To loss {level:g}, {cheapest} sent the least: {_amount(sent[cheapest], measure)} ({_WHAT[measure]}{seeds}). "
    )
    text += f"{other}{'' if other == mine else ', the next,'} sent {_amount(sent[other], measure)}"
    found = ratio(groups[other], groups[cheapest], level, measure)
    text += f", {found} as much." if found else "."
    if short := [name for name in groups if name not in sent]:
        text += f" {' and '.join(short)} did not reach it."
    if (lowest := min(lower for lower, those in reached.items() if those)) < level:
        text += f" Only {' and '.join(sorted(reached[lowest]))} reached loss {lowest:g}."
    return text


def _amount(value: float, measure: str) -> str:
    return amount(value, COLUMNS[measure].unit)
