"""What a person sees while a run is running. Where the output is not a terminal it stays quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from ..runs.config import Config
from ..runs.jobs import Job
from ..runs.records import SUMMARY
from ..runs.state import RunState
from ..training.own_files import short
from .tables import value_text

if TYPE_CHECKING:
    from ..runs.comparison import Spectator


@contextmanager
def shown(quiet: bool, jobs: Sequence[Job] = ()) -> Iterator[Spectator]:
    """Shows runs: live lines on a terminal, a few lines elsewhere. jobs: of a comparison."""
    console = Console(stderr=True)
    if quiet:
        yield _Quiet(jobs)
    elif not console.is_terminal:
        yield _Lines(jobs)
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeRemainingColumn(compact=True))
        with Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console) as display:
            yield _Live(jobs, display)


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
    bits = summary["paper_bits"]
    formula = "" if bits is None else f" (by the paper's formula {value_text('paper_bits', bits)} each)"
    return (
        f"{summary['rounds']} rounds in {summary['seconds']:.0f} s: {', '.join(measured)}; all clients together sent "
        f"{value_text('wire_bytes_up', summary['wire_bytes_up'])}{formula}.\nThe record is in {out}"
    )


def numbers(state: RunState, line: dict[str, Any] | None) -> str:
    """The figures of a round."""
    s = line["s"] if line else state.s
    latest = state.latest
    levels = "—" if s is None else f"{s:.3g}" if s < 100 else f"{s:.0f}"
    shown = [*_measured(latest.loss, latest.accuracy, latest.test_loss), f"s {levels}"]
    shown.append(f"sent {value_text('wire_bytes_up', state.ledger.wire_bytes_up)}")
    return "  ".join([*shown, "taken back"] if line and line.get("undone") else shown)


def _measured(loss: float | None, accuracy: float | None, test_loss: float | None) -> list[str]:
    """What was measured, in words; a loss of None is one that JSON cannot hold."""
    shown = {"loss": _number(loss)}
    shown |= {} if test_loss is None else {"test loss": _number(test_loss)}
    shown |= {} if accuracy is None else {"accuracy": value_text("test_accuracy", accuracy)}
    return [f"{name} {number}" for name, number in shown.items()]


def _duration(seconds: float) -> str:
    """A time to wait.

    >>> _duration(41.2), _duration(700), _duration(9000)
    ('41 s', '12 min', '2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class _Quiet:
    """Counts the runs of a comparison and shows nothing. Runs that were finished before it started take no time."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._runs, self._done = len(jobs), 0
        self._rounds = {job.out: job.config.rounds for job in jobs if not (job.out / SUMMARY).is_file()}
        self._played = 0  # rounds of the runs that have ended
        self._began = time.monotonic()

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        pass

    def begins(self, job: Job) -> None:
        pass

    def ended(self, job: Job, failure: str) -> None:
        self._done += 1
        self._played += self._rounds.get(job.out, 0)

    def _overall(self, rounds: int = 0) -> str:
        """Runs done and the time left; rounds: of the present run so far."""
        played, total = self._played + rounds, sum(self._rounds.values())
        done = f"{self._done} of {self._runs} runs done"
        if not 0 < played < total:
            return done
        return f"{done}, about {_duration((time.monotonic() - self._began) * (total - played) / played)} left"


class _Lines(_Quiet):
    """A line when a run starts and, in a comparison, when it ends."""

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            resumed = f", from round {state.round}" if state.round else ""
            task = Path(config.task).name if config.task else f"{config.model} on {config.dataset}"
            where = "" if self._runs else f"{short(config.method)} seed {config.seed}: {task}, "
            _say(f"{where}{config.clients} clients, {config.rounds} rounds{resumed}")

    def begins(self, job: Job) -> None:
        _say(f"[{self._done + 1}/{self._runs}] {job.name}")

    def ended(self, job: Job, failure: str) -> None:
        super().ended(job, failure)
        _say(f"{job.name}: {'failed' if failure else 'finished'}\n{self._overall()}")


class _Live(_Quiet):
    """A progress bar with the figures of the last round; below it, in a comparison, how far all runs are."""

    def __init__(self, jobs: Sequence[Job], display: Progress) -> None:
        super().__init__(jobs)
        self._display = display
        self._task = display.add_task("loading data and model", total=None, numbers="")
        self._first = 0

    def __call__(self, config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if line is None:
            self._first = state.round
            self._display.reset(self._task, total=config.rounds, completed=state.round)
        overall = f"\n{self._overall(state.round - self._first)}" if self._runs else ""
        self._display.update(
            self._task,
            description=f"{short(config.method)} seed {config.seed}  round {state.round}/{config.rounds}",
            completed=state.round,
            numbers=f"\n{numbers(state, line)}{overall}",
        )

    def ended(self, job: Job, failure: str) -> None:
        super().ended(job, failure)
        self._display.console.print(f"{job.name}: {'failed' if failure else 'finished'}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
