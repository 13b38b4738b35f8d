"""One line for each finished run, in one file for each task: settings, evaluations, bytes, and the code's commit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from adaquantfl.bench.curve import Curve
from adaquantfl.bench.tasks import BenchTask
from adaquantfl.errors import EngineError
from evidence.studies.floor.methods import FLOAT32, METHODS, Setting, rounds_of
from evidence.studies.floor.tasks import TASKS, TRIAL, TRIAL_SEED, by_accuracy, compared_every
from evidence.studies.traces import current_commit

RECORDS = Path("evidence") / "records" / "floor"


@dataclass(frozen=True, kw_only=True)
class Record(Curve):
    """A run.

    Attributes:
        failure: why it stopped early.
        passes: examples that went forward through a client's model, in all; 0 where it was not counted.
    """

    task: str
    method: str
    setting: str
    seed: int
    failure: str
    seconds: float
    commit: str
    passes: int = 0

    def compared(self) -> Record:
        """Only the evaluations that every method has: at multiples of `compared_every`, and after the last round.

        A trailing mean of evaluations in every round would meet a target earlier than one of every fourth round.
        """
        task = TRIAL if self.task == TRIAL.name else TASKS[self.task]
        last = rounds_of(self.method, task)
        kept = [place for place, one in enumerate(self.round) if one % compared_every(task) == 0 or one == last]
        return replace(
            self,
            round=[self.round[place] for place in kept],
            value=[self.value[place] for place in kept],
            up=[self.up[place] for place in kept],
            down=[self.down[place] for place in kept],
        )


def load(task: str, records: Path = RECORDS, every_round: bool = False) -> list[Record]:
    """The finished runs of a task, at the rounds where methods are compared or at all that were evaluated."""
    path = records / f"{task}.jsonl"
    found = [Record(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    return found if every_round else [one.compared() for one in found]


def play(task: BenchTask, method: str, setting: Setting, seed: int, target: float | None, records: Path) -> Record:
    """Carry a run out and write it down. Once float32's rounds are over, it ends where the target is met."""
    began = time.perf_counter()
    lines, failure = [], ""
    config = setting.config(task, seed, rounds_of(method, task))
    try:
        for line in setting.rounds(config):
            if line.value is None:
                continue
            lines.append(line)
            if not math.isfinite(line.value):
                failure = f"Round {line.round}: the test value is {line.value}."
                break
            so_far = _record(task, method, setting, seed, lines, failure, 0.0).compared()
            if target is not None and line.round >= task.rounds and so_far.spent(target, "up") is not None:
                break
    except EngineError as error:  # a training that diverges is a result
        failure = str(error)
    made = _record(task, method, setting, seed, lines, failure, time.perf_counter() - began)
    records.mkdir(parents=True, exist_ok=True)
    with (records / f"{task.name}.jsonl").open("a") as file:
        file.write(json.dumps(asdict(made)) + "\n")
    return made


def chosen(method: str, records: Path = RECORDS) -> Setting | None:
    """The setting with the fewest bytes up on the trial task, or the best final value where none reached it.

    None where trials are missing.
    """
    settings = METHODS[method]
    if len(settings) == 1:
        return settings[0]
    found = {one.setting: one for one in load(TRIAL.name, records) if one.method == method}
    floats = [one for one in load(TRIAL.name, records) if one.method == FLOAT32]
    if not floats or any(setting.label not in found for setting in settings):
        return None
    target = floats[0].target(TRIAL.rounds)

    def order(setting: Setting) -> tuple[float, float]:
        one = found[setting.label]
        return one.spent(target, "up") or math.inf, -(one.final(TRIAL.rounds) or 0.0)

    return min(settings, key=order)


def run_trials(records: Path) -> None:
    """Try every setting that was not tried yet."""
    for method, settings in METHODS.items():
        if len(settings) > 1 or method == FLOAT32:
            for setting in settings:
                run_missing(TRIAL, method, setting, TRIAL_SEED, records)


def run_missing(
    task: BenchTask, method: str, setting: Setting, seed: int, records: Path, floor: Path | None = None
) -> None:
    """Carry a run out if it has no record; float32 of the same seed first, which is kept in `floor`."""
    if any((one.method, one.setting, one.seed) == (method, setting.label, seed) for one in load(task.name, records)):
        return
    target = None
    if method != FLOAT32:
        floor = floor or records
        run_missing(task, FLOAT32, METHODS[FLOAT32][0], seed, floor)
        target = targets(task, floor)[seed]
    made = play(task, method, setting, seed, target, records)
    print(
        f"{task.name} {method} {setting.label} seed {seed}: {made.value[-1:]} {made.seconds:.1f} s {made.failure}",
        flush=True,
    )


def targets(task: BenchTask, records: Path = RECORDS) -> dict[int, float]:
    """What a method has to reach, by seed: float32 says it."""
    return {one.seed: one.target(task.rounds) for one in load(task.name, records) if one.method == FLOAT32}


def _record(
    task: BenchTask, method: str, setting: Setting, seed: int, lines: Sequence[object], failure: str, seconds: float
) -> Record:
    columns = {name: [getattr(line, name) for line in lines] for name in ("round", "value", "up", "down")}
    commit = current_commit() if seconds else ""
    accuracy = by_accuracy(task)
    return Record(
        task=task.name,
        method=method,
        setting=setting.label,
        seed=seed,
        accuracy=accuracy,
        **columns,
        failure=failure,
        seconds=round(seconds, 1),
        commit=commit,
        passes=getattr(lines[-1], "passes", 0) if lines else 0,
    )
