"""The panels of the paper's figures 2 to 5 from their records, as far as these exist and got: figures and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adaquantfl.report import figures, tables
from adaquantfl.runs.config import load_config
from adaquantfl.runs.records import RunRecord, find_runs, method_label
from evidence.studies.letter import crossing
from evidence.studies.reproduce import PANEL_METHODS

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Place:
    """Where the paper shows a panel: its loss in one figure, its test accuracy in another, under the same letter."""

    task: str
    loss_figure: int
    accuracy_figure: int
    letter: str
    setting: str


def _places() -> dict[str, Place]:
    settings = {
        "iid": "fixed rate, i.i.d.",
        "iid-decay": "variable rate, i.i.d.",
        "noniid": "fixed rate, sorted labels",
    }
    tasks = {"cifar-resnet18": ("ResNet-18 on CIFAR-10", 2, 4), "fmnist-cnn": ("CNN on Fashion-MNIST", 3, 5)}
    return {
        f"{prefix}-{kind}": Place(*task, letter, setting)
        for prefix, task in tasks.items()
        for letter, (kind, setting) in zip("abc", settings.items(), strict=True)
    }


PLACES = _places()  # by preset, in the paper's order
PANEL_LABELS = {method: method_label(method) for method in PANEL_METHODS} | {
    "adaquant": "AdaQuantFL (nearest)"  # how all of these runs round s
}


@dataclass(frozen=True)
class Panel:
    """One panel's records: a run for each method that has one, AdaQuantFL first."""

    name: str
    runs: tuple[RunRecord, ...]

    @property
    def place(self) -> Place:
        return PLACES[self.name]

    @property
    def title(self) -> str:
        return f"{self.place.task}, {self.place.setting}"

    @property
    def budget(self) -> int:
        """The rounds that the preset allows."""
        return load_config(self.name).rounds

    @property
    def extent(self) -> str:
        """How far the runs went: "200 of 600 rounds", or all the way."""
        target = load_config(self.name).target_loss
        if all(run.rounds >= self.budget or (run.final("loss") or target + 1) <= target for run in self.runs):
            return f"{self.budget} rounds or loss {target:g}"
        ends = sorted({run.rounds for run in self.runs})
        span = f"{ends[0]}" if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
        return f"{span} of {self.budget} rounds"

    @property
    def quantized(self) -> list[RunRecord]:
        return [run for run in self.runs if run.method != "fp32"]

    @property
    def fixed(self) -> list[RunRecord]:
        return [run for run in self.quantized if run.method != "adaquant"]

    def run(self, method: str) -> RunRecord | None:
        return next((run for run in self.runs if run.method == method), None)

    @property
    def smoothed(self) -> Panel:
        """The panel with each round loss as its mean since the last evaluation: one mini-batch a step is noisy."""
        window = load_config(self.name).evaluate_every
        return Panel(self.name, tuple(smoothed(run, "round_loss", window) for run in self.runs))

    @property
    def same_rounds(self) -> Panel:
        """The runs as far as the shortest of them went that did not stop at its target loss."""
        target = load_config(self.name).target_loss
        cut_short = [run.rounds for run in self.runs if (run.final("loss") or target + 1) > target]
        shortest = min(cut_short, default=self.budget)
        return Panel(self.name, tuple(until(run, shortest) for run in self.runs))

    def common_level(self, key: str = "loss") -> float | None:
        """The lowest level, to two digits, that AdaQuantFL and every fixed level here reached."""
        lowest = [run.lowest(key) for run in self.quantized]
        known = [value for value in lowest if value is not None]
        return tables.round_up(max(known)) if known and len(known) == len(lowest) else None


def until(run: RunRecord, rounds: int) -> RunRecord:
    """The first `rounds` rounds of a run."""
    return replace(run, history=[line for line in run.history if line["round"] <= rounds])


def smoothed(run: RunRecord, key: str, rounds: int) -> RunRecord:
    """A run with `key` as its mean over the last `rounds` rounds; rounds before that have none."""
    history = []
    for end, line in enumerate(run.history, start=1):
        recent = [value for past in run.history[max(0, end - rounds) : end] if (value := past.get(key)) is not None]
        history.append({**line, key: sum(recent) / rounds if len(recent) == rounds else None})
    return replace(run, history=history)


def load_panels(records: Path) -> list[Panel]:
    """The panels below `records` that have a run, in the paper's order."""
    found = []
    for name in PLACES:
        if (folder := records / name).is_dir():
            by_method = {run.method: run for run in find_runs([folder])}
            found.append(Panel(name, tuple(by_method[method] for method in PANEL_METHODS if method in by_method)))
    return found


def figure(panels: Sequence[Panel], rows: Sequence[str], x: str = "paper_bits") -> Figure:
    """Panels side by side, a row of axes for each of the measures `rows`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(figures.RC):
        width = 1.5 + 3.9 * len(panels)
        picture = Figure(figsize=(width, 1.3 + 3.1 * len(rows)), layout="constrained")
        grid = picture.subplots(len(rows), len(panels), sharex="col", squeeze=False)
        for column, panel in enumerate(panels):
            for row, key in enumerate(rows):
                axes = grid[row, column]
                figures.panel(axes, panel.smoothed.runs, key, x, xscale="log")
                if column:
                    axes.set_ylabel("")
                if row < len(rows) - 1:
                    axes.set_xlabel("")
            grid[0, column].set_title(f"({panel.place.letter}) {panel.place.setting}\n{panel.extent}", fontsize=11)
        figures.legend(picture, list(grid.flat), columns=6 if len(panels) > 1 else 3)
        picture.suptitle(panels[0].place.task)
    return picture


def extents(panels: Sequence[Panel]) -> list[list[str]]:
    """How many rounds of its budget each run played."""
    rows = [[panel.title, *_cells(panel, lambda run: str(run.rounds)), str(panel.budget)] for panel in panels]
    return [[*_header("Rounds"), "budget"], *rows]


def floors(panels: Sequence[Panel]) -> list[list[str]]:
    """The lowest loss of each method: global, and of a round's mini-batches."""

    def cell(run: RunRecord) -> str:
        values = (run.lowest("loss"), run.lowest("round_loss"))
        return " / ".join(tables.NOT_REACHED if value is None else tables.significant(value) for value in values)

    rows = [[_shortened(panel), *_cells(panel.same_rounds.smoothed, cell)] for panel in panels]
    return [_header("Lowest loss: global / round"), *rows]


def accuracies(panels: Sequence[Panel]) -> list[list[str]]:
    """The test accuracy of each method: at the end, and the best on the way."""

    def cell(run: RunRecord) -> str:
        _, values = run.series("test_accuracy")
        return f"{values[-1]:.2%} / {values.max():.2%}" if values.size else tables.NOT_REACHED

    rows = [[_shortened(panel), *_cells(panel.same_rounds, cell)] for panel in panels]
    return [_header("Test accuracy: last / best"), *rows]


def way_to_common_loss(panel: Panel) -> list[list[str]]:
    """What the lowest common loss took: rounds, times what a round costs. AdaQuantFL first."""
    level = panel.common_level()
    grid = [["Method", "rounds", "s on the way", "bits per element and round", "paper's bits", "ratio"]]
    if level is None:
        return grid
    bits = {run.method: sent(run, level) for run in panel.quantized}
    for run in panel.quantized:
        rounds = sent(run, level, "round")
        levels = [line["s"] for line in run.history[: math.ceil(rounds)]]
        span = f"{levels[0]}" if levels[0] == levels[-1] else f"{levels[0]} to {levels[-1]}"
        each = bits[run.method] / rounds / (run.summary or {})["dimension"]
        ratio = f"{bits[run.method] / bits['adaquant']:.2f}x" if "adaquant" in bits else tables.NOT_REACHED
        grid.append([run.label, f"{rounds:.0f}", span, f"{each:.2f}", tables.amount(round(bits[run.method])), ratio])
    return grid


def sent(run: RunRecord, level: float, measure: str = "paper_bits", key: str = "loss") -> float:
    """What a run had sent when its loss reached a level that it did reach, interpolated between evaluations."""
    spent, losses = run.series(key, measure)
    found = crossing(list(losses), list(spent), level)
    assert found is not None
    return found


def _shortened(panel: Panel) -> str:
    return f"{panel.title}, {panel.same_rounds.extent}"


def _header(first: str) -> list[str]:
    return [first, *(PANEL_LABELS[method] for method in PANEL_METHODS)]


def _cells(panel: Panel, text: Callable[[RunRecord], str]) -> list[str]:
    runs = [panel.run(method) for method in PANEL_METHODS]
    return [tables.NOT_REACHED if run is None else text(run) for run in runs]
