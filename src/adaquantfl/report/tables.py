"""How much each method sent to reach a training loss, as one small table for Markdown, the terminal and the page.

Two measures: `wire_bytes_up`, the bytes that all clients together really sent, and `paper_bits`, the uplink of one
client by the paper's formula, for runs of the paper's quantizer only. Ratios are to AdaQuantFL: 3.2x means 3.2 times
what AdaQuantFL sent, and 1.10x ± 0.05 is interpolated between two evaluations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runs.columns import COLUMNS
from ..runs.records import RunRecord, differing_settings, group_runs

Measure = str  # the name of a column that has a caption

NOT_REACHED = "—"
# Runs that differ in one of these solve different problems: their bits must not be set against each other.
EXPERIMENT = ("task", "task_sha256", "dataset", "examples", "model", "partition", "clients")


@dataclass(frozen=True)
class Cell:
    """What the runs of one method sent to reach one loss level, over those that reached it."""

    runs: int
    reached: int
    mean: float | None
    std: float | None
    ratio: "Ratio | None"  # to AdaQuantFL; None unless every run of both reached the level

    @property
    def complete(self) -> bool:
        return self.reached == self.runs


@dataclass(frozen=True)
class Ratio:
    """Times what another method sent. within: how far off it may be, where both reached the loss between the same two
    evaluations, so that it is interpolated; 0 where it is of what both had sent when they were first seen there."""

    value: float
    within: float = 0.0

    def __str__(self) -> str:
        return f"{times(self.value)} ± {significant(self.within, 2)}" if self.within else times(self.value)


@dataclass(frozen=True)
class Row:
    method: str
    cells: tuple[Cell, ...]
    lowest_loss: tuple[float, ...]  # one a run


@dataclass(frozen=True)
class Table:
    measure: Measure
    levels: tuple[float, ...]
    rows: tuple[Row, ...]

    @property
    def unit(self) -> tuple[float, str]:
        """(divisor, name) that keeps the numbers of the whole table readable."""
        means = [cell.mean for row in self.rows for cell in row.cells if cell.mean] or [1.0]
        middle = math.sqrt(min(means) * max(means))
        symbol = COLUMNS[self.measure].unit
        return si_unit(middle, symbol) if symbol else (1.0, COLUMNS[self.measure].head)

    @property
    def caption(self) -> str:
        return f"{COLUMNS[self.measure].caption}, in {self.unit[1]} (and times AdaQuantFL's)"

    def grid(self) -> list[list[str]]:
        """The header and the rows as text, the same for Markdown, the terminal and HTML."""
        grid = [["Method", *(f"loss {level:g}" for level in self.levels), "lowest loss"]]
        for row in self.rows:
            grid.append([row.method, *(_cell_text(cell, self.unit[0]) for cell in row.cells), spread(row.lowest_loss)])
        return grid


def si_unit(largest: float, symbol: str) -> tuple[float, str]:
    """The SI prefix that puts `largest` at one or more.

    >>> si_unit(3.2e9, "b"), si_unit(900.0, "B")
    ((1000000000.0, 'Gb'), (1.0, 'B'))
    """
    if not symbol:
        return 1.0, ""
    for divisor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= divisor:
            return divisor, prefix + symbol
    return 1.0, symbol


def loss_levels(runs: Sequence[RunRecord], most: int = 6) -> list[float]:
    """Round loss levels that some run reached, high to low, with the lowest that every run reached.

    Levels at or above the first loss that was seen say nothing about training and are left out. Of the rest the `most`
    lowest are kept. A target_loss in a configuration counts as a round level.
    """
    lowest = [value for run in runs if (value := run.lowest()) is not None]
    starts = [losses[0] for run in runs if (losses := run.series("loss")[1]).size and np.isfinite(losses[0])]
    if not lowest or not starts:
        return []
    ladder = {float(f"{digit}e{power}") for power in range(-6, 9) for digit in (1, 2, 3, 5)}
    ladder |= {float(run.config.get("target_loss") or 0.0) for run in runs}
    common = round_up(max(lowest))
    levels = sorted(level for level in ladder if min(lowest) <= level < max(starts))[: most - 1]
    if common < max(starts):
        levels.append(common)
    return sorted(set(levels), reverse=True)


def measures(runs: Sequence[RunRecord]) -> list[Measure]:
    """The measures that some run has, bytes first."""
    known = sorted((column for column in COLUMNS.values() if column.caption), key=lambda column: column.x)
    return [column.name for column in known if having(runs, column.name)]


def having(runs: Sequence[RunRecord], name: str) -> list[RunRecord]:
    """The runs whose history has this column."""
    return [run for run in runs if not run.history or name in run.history[-1]]


def bits_table(
    runs: Sequence[RunRecord], levels: Sequence[float] | None = None, measure: Measure = "wire_bytes_up"
) -> Table:
    """One row a method (its seeds averaged), one column a loss level; methods that have the measure."""
    runs = having(runs, measure)
    chosen = tuple(loss_levels(runs) if levels is None else sorted(levels, reverse=True))
    groups = group_runs(runs)
    ours = next((group for group in groups.values() if group[0].method == "adaquant"), None)
    rows = []
    for name, group in groups.items():
        cells = [_cell(group, level, measure, ratio(group, ours, level, measure) if ours else None) for level in chosen]
        rows.append(Row(name, tuple(cells), tuple(value for run in group if (value := run.lowest()) is not None)))
    return Table(measure, chosen, tuple(rows))


def value_text(name: str, value: float | None) -> str:
    """A value of a column for a reader.

    >>> value_text("test_accuracy", 0.8123), value_text("paper_bits", 3.2e9), value_text("loss", 0.5)
    ('81.23%', '3.20 Gb', '0.500')
    """
    if value is None:
        return NOT_REACHED
    if (unit := COLUMNS[name].unit) == "%":
        return f"{value:.2%}"
    return amount(value, unit) if unit else str(value) if isinstance(value, int) else significant(value)


def amount(value: float, symbol: str = "b") -> str:
    """A count of bits (or bytes, symbol "B") with the unit that suits it: "3.20 Gb"."""
    divisor, unit = si_unit(value, symbol)
    return f"{significant(value / divisor) if divisor > 1 else f'{value:g}'} {unit}"


def to_markdown(table: Table) -> str:
    return f"{table.caption}.\n\n{markdown(table.grid())}\n"


def markdown(grid: Sequence[Sequence[str]]) -> str:
    """A header and rows of text as a Markdown table; all columns but the first to the right."""
    header, *rows = ([text.replace("|", "\\|") for text in line] for line in grid)
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def to_text(table: Table) -> str:
    """The table for a terminal."""
    return f"{table.caption}\n{aligned(table.grid())}\n"


def aligned(grid: Sequence[Sequence[str]]) -> str:
    """A header and rows of text in columns; all but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    rows = [
        [row[0].ljust(widths[0]), *(cell.rjust(wide) for cell, wide in zip(row[1:], widths[1:], strict=True))]
        for row in grid
    ]
    rows.insert(1, ["-" * wide for wide in widths])
    return "\n".join("  ".join(row).rstrip() for row in rows)


def significant(value: float, digits: int = 3) -> str:
    """`value` to this many significant digits, without an exponent in the range that tables hold."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation of several."""
    return _plus_minus(*_mean_std(values)) if len(values) else NOT_REACHED


def _mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def round_up(value: float) -> float:
    """Up to two significant digits, and never below `value`: the run it came from reaches the level."""
    if value <= 0:
        return value
    power = math.floor(math.log10(value)) - 1
    digits = math.floor(value / 10.0**power)
    levels = (float(f"{digits + more}e{power}") for more in range(3))
    return next(level for level in levels if level >= value)


def ratio(one: Sequence[RunRecord], other: Sequence[RunRecord], level: float, measure: Measure) -> Ratio | None:
    """Return how many times what `other` sent to a loss `one` sent, on average over their seeds.

    None where they solve different problems, or where a run of them did not reach the loss.
    """
    if any(key in EXPERIMENT for key in differing_settings([*one, *other])):
        return None
    groups = [[run.reached(level) for run in group] for group in (one, other)]
    if not all(all(group) for group in groups):
        return None
    rounds = [[line and line["round"] for line in group] for group in groups]
    crossings = [[run.crossing(level, measure) for run in group] for group in (one, other)]
    (least, mine, most), (low, theirs, high) = (
        np.mean(np.array(group, dtype=np.float64), axis=0) for group in crossings
    )
    if one is other or rounds[0] != rounds[1]:
        return Ratio(float(most / high))
    return Ratio(float(mine / theirs), float(most / low - least / high) / 2) if low else None


def _cell(group: Sequence[RunRecord], level: float, measure: Measure, ratio: Ratio | None) -> Cell:
    values = [float(line[measure]) for run in group if (line := run.reached(level)) is not None]
    mean, std = _mean_std(values) if values else (None, None)
    return Cell(len(group), len(values), mean, std, ratio)


def _cell_text(cell: Cell, divisor: float) -> str:
    if cell.mean is None:
        return NOT_REACHED
    text = _plus_minus(cell.mean / divisor, None if cell.std is None else cell.std / divisor)
    if not cell.complete:
        return f"{text} [{cell.reached} of {cell.runs} seeds]"
    return text if cell.ratio is None else f"{text} ({cell.ratio})"


def _plus_minus(mean: float, std: float | None) -> str:
    text = significant(mean)
    decimals = len(text.partition(".")[2])
    return text if std is None else f"{text} ± {std:.{decimals}f}"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{significant(ratio)}x"
