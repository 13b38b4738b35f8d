"""What a person sees while runs are going: bars on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
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
    from ..runs.tracking import Observer

LINE_SECONDS = 10.0  # between lines, where there is no terminal


@contextmanager
def shown(quiet: bool, jobs: Sequence[Job] = ()) -> Iterator[Display]:
    """Shows runs: live lines on a terminal, a few lines elsewhere. jobs: of a comparison."""
    console = Console(stderr=True)
    if quiet:
        yield Display(jobs)
    elif not console.is_terminal:
        yield _Lines(jobs)
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeRemainingColumn(compact=True))
        with Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console) as progress:
            yield _Live(jobs, progress)


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
    """Shows nothing; the base of what shows runs, one after another."""

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        self._runs, self._done = len(jobs), 0

    def of(self, name: str = "") -> Observer:
        """Return the observer of one run; name: as `Job.name`."""

        def observe(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
            self._show(name or f"{short(config.method)} seed {config.seed}", config, state, line)

        return observe

    def ended(self, job: Job, failure: str) -> None:
        """Note that a run of a comparison has ended. failure: why; empty where it is finished."""
        self._done += 1
        self._say(f"{job.name}: {'failed' if failure else 'finished'}, {self._done} of {self._runs} runs done")

    def _show(self, name: str, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        pass

    def _say(self, text: str) -> None:
        pass


class _Lines(Display):
    """A line when a run starts and when it ends, and every ten seconds how far one is."""

    def _show(self, name: str, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            resumed = f", from round {state.round}" if state.round else ""
            task = Path(config.task).name if config.task else f"{config.model} on {config.dataset}"
            self._say(f"{name}: {task}, {config.clients} clients, {config.rounds} rounds{resumed}")
        elif time.monotonic() > self._said + LINE_SECONDS:
            self._say(f"{name}: round {state.round} of {config.rounds}, {numbers(state, line)}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        print(text, file=sys.stderr, flush=True)


class _Live(Display):
    """A progress bar for the run that is going, with the figures of its last round."""

    def __init__(self, jobs: Sequence[Job], progress: Progress) -> None:
        super().__init__(jobs)
        self._progress = progress
        self._bar = progress.add_task("loading data and model", total=None, numbers="")

    def _show(self, name: str, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:  # another run
            self._progress.reset(self._bar, total=config.rounds)
        text, figures = f"{name}  round {state.round}/{config.rounds}", f"\n{numbers(state, line)}"
        self._progress.update(self._bar, description=text, completed=state.round, numbers=figures)

    def _say(self, text: str) -> None:
        self._progress.console.print(text)
