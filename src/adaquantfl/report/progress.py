"""What a person sees while a run is running. Where the output is not a terminal it stays quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..runs.config import Config
from ..runs.loop import Observer, RunState
from ..runs.own_files import short
from . import curve
from .tables import value_text


@contextmanager
def shown(quiet: bool) -> Iterator[Observer]:
    """An observer of runs: live lines and the loss curve on a terminal, one line a run elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield lambda config, state, line: None
    elif not console.is_terminal:
        yield _announce
    else:
        with _Display(console) as display:
            display_task = display.add_task("starting", total=None, numbers="loading data and model")
            yield _Live(display, display_task)


@contextmanager
def download() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for `data get`: (what, bytes done, bytes in all); 0 in all is a remark."""
    console = Console(stderr=True)
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console) as display:
        bars: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if total == 0:
                display.console.print(what)
                return
            if what not in bars:
                bars[what] = display.add_task(what, total=total)
            display.update(bars[what], completed=done)

        yield show


def closing_line(summary: dict[str, Any], out: Path) -> str:
    """A finished run in two lines."""
    measured = _measured(summary["final_loss"], summary["final_accuracy"], summary.get("final_test_loss"))
    return (
        f"{summary['rounds']} rounds in {summary['seconds']:.0f} s: {', '.join(measured)}; "
        f"a client sent {value_text('paper_bits', summary['paper_bits'])} by the paper's formula, all clients together "
        f"{value_text('wire_bytes_up', summary['wire_bytes_up'])}.\nThe record is in {out}"
    )


def numbers(state: RunState, line: dict[str, Any] | None) -> str:
    """The figures of a round."""
    s = line["s"] if line else state.s
    latest = state.latest
    levels = "—" if s is None else f"{s:.3g}" if s < 100 else f"{s:.0f}"
    shown = [*_measured(latest.loss, latest.accuracy, latest.test_loss), f"s {levels}"]
    shown.append(f"sent {value_text('paper_bits', state.ledger.paper_bits)}")
    return "  ".join([*shown, "taken back"] if line and line.get("undone") else shown)


def _measured(loss: float | None, accuracy: float | None, test_loss: float | None) -> list[str]:
    """What was measured, in words; a loss of None is one that JSON cannot hold."""
    shown = {"loss": _number(loss)}
    shown |= {} if test_loss is None else {"test loss": _number(test_loss)}
    shown |= {} if accuracy is None else {"accuracy": value_text("test_accuracy", accuracy)}
    return [f"{name} {number}" for name, number in shown.items()]


class _Display(Progress):
    """A progress line, and under it the curve of the run's loss."""

    def __init__(self, console: Console) -> None:
        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
        ]
        self.losses: list[float | None] = []
        self.rounds = 0
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if len(self.losses) < 2 or self.console.width < 30 or self.console.options.ascii_only:
            return
        lines = curve.plot(self.losses, min(60, self.console.width - 12), total=self.rounds)
        yield Text("\n".join(["  round loss, mini-batches", *(f"  {line}" for line in lines)]), style="dim")


class _Live:
    def __init__(self, display: _Display, task: TaskID) -> None:
        self._display, self._task = display, task
        self._began = 0.0
        self._first = 0

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            self._began, self._first = time.monotonic(), state.round
            self._display.reset(self._task, total=config.rounds, completed=state.round)
            self._display.losses, self._display.rounds = [], config.rounds - state.round
        elif line["round_loss"] is not None:
            self._display.losses.append(line["round_loss"])
        rate = (time.monotonic() - self._began) / max(1, state.round - self._first)
        pace = f"  {rate:.2f} s/round" if line else ""
        self._display.update(
            self._task,
            description=f"{short(config.method)} seed {config.seed}  round {state.round}/{config.rounds}",
            completed=state.round,
            numbers=numbers(state, line) + pace,
        )


def _announce(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
    if line is None:
        print(
            f"{short(config.method)} seed {config.seed}: {_experiment(config)}, {config.clients} clients, "
            f"{config.rounds} rounds" + (f", from round {state.round}" if state.round else ""),
            file=sys.stderr,
            flush=True,
        )


def _experiment(config: Config) -> str:
    return Path(config.task).name if config.task else f"{config.model} on {config.dataset}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
