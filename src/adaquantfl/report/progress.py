"""What a person sees while runs are going: bars on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from ..runs.config import Config
from ..runs.jobs import Job
from ..runs.state import RunState
from ..training.own_files import short
from .tables import value_text

if TYPE_CHECKING:
    from ..engines.launch import Observer

LINE_SECONDS = 10.0  # between lines, where there is no terminal


@contextmanager
def shown(quiet: bool, jobs: Sequence[Job] = ()) -> Iterator[Display]:
    """Shows runs: live lines on a terminal, a few lines elsewhere. jobs: of a comparison."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24),
        TimeRemainingColumn(compact=True), TextColumn("{task.fields[numbers]}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        yield Display(jobs, progress)


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
    test = {"test_accuracy": summary["final_accuracy"], "test_loss": summary.get("final_test_loss")}
    measured = _measured(summary["final_loss"], test)
    bits = summary["paper_bits"]
    formula = "" if bits is None else f" (by the paper's formula {value_text('paper_bits', bits)} each)"
    return (
        f"{summary['rounds']} rounds in {summary['seconds']:.0f} s: {', '.join(measured)}; all clients together sent "
        f"{value_text('wire_bytes_up', summary['wire_bytes_up'])}{formula}.\nThe record is in {out}"
    )


def numbers(state: RunState, line: dict[str, Any] | None) -> str:
    """The figures of a round."""
    s = line["s"] if line else state.s
    levels = "—" if s is None else f"{s:.3g}" if s < 100 else f"{s:.0f}"
    shown = [*_measured(state.latest.loss, state.latest.test), f"s {levels}"]
    shown.append(f"sent {value_text('wire_bytes_up', state.ledger.wire_bytes_up)}")
    return "  ".join([*shown, "taken back"] if line and line.get("undone") else shown)


def _measured(loss: float | None, test: Mapping[str, float | None]) -> list[str]:
    """What was measured, in words; a loss of None is one that JSON cannot hold."""
    shown = ["loss not finite" if loss is None else f"loss {loss:.4f}"]
    if (test_loss := test.get("test_loss")) is not None:
        shown.append(f"test loss {test_loss:.4f}")
    if (accuracy := test.get("test_accuracy")) is not None:
        shown.append(f"accuracy {value_text('test_accuracy', accuracy)}")
    return shown


class Display:
    """Shows runs, one after another: a bar with the figures of the last round, or lines where there is no terminal."""

    def __init__(self, jobs: Sequence[Job], progress: Progress) -> None:
        self._runs, self._done, self._said = len(jobs), 0, 0.0
        self._progress, self._lines = progress, progress.disable
        self._bar = progress.add_task("loading data and model", total=None, numbers="")

    def of(self, name: str = "") -> Observer:
        """Return the observer of one run; name: as `Job.name`."""

        def observe(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
            title = name or f"{short(config.method)} seed {config.seed}"
            if line is None:  # another run
                self._progress.reset(self._bar, total=config.rounds)
            if self._lines and line is None:
                resumed = f", from round {state.round}" if state.round else ""
                task = Path(config.task).name if config.task else f"{config.model} on {config.dataset}"
                self._say(f"{title}: {task}, {config.clients} clients, {config.rounds} rounds{resumed}")
            elif self._lines and time.monotonic() > self._said + LINE_SECONDS:
                self._say(f"{title}: round {state.round} of {config.rounds}, {numbers(state, line)}")
            text, figures = f"{title}  round {state.round}/{config.rounds}", f"\n{numbers(state, line)}"
            self._progress.update(self._bar, description=text, completed=state.round, numbers=figures)

        return observe

    def ended(self, job: Job, failure: str) -> None:
        """Note that a run of a comparison has ended. failure: why; empty where it is finished."""
        self._done += 1
        self._say(f"{job.name}: {'failed' if failure else 'finished'}, {self._done} of {self._runs} runs done")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._progress.console.print(text, soft_wrap=True, markup=False, highlight=False)
