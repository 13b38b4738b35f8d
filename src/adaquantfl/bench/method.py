"""Someone's own compressor on the bench's tasks, beside ours: what it sends until it is as good as float32.

A compressor is a class in a file, FILE.py:CLASS, with the two methods of `Compressor`. Each client has two objects of
it that live as long as the run: one compresses, the other, at the server, sees nothing but the bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from ..errors import CheckpointError, ConfigError, EngineError, place_of
from ..names import unknown
from ..protocol.arrays import Vector
from ..quantizers.streams import stream_key
from ..report.tables import aligned
from ..runs.config import Config, load_config
from ..runs.methods import parse
from ..training.methods import check_signature, in_file
from ..training.own_files import OwnFile, blamed, digest, names_file, short
from .curve import Curve
from .loop import Line, Sent, compressed_rounds, engine_rounds
from .tasks import MORE_ROUNDS, TASKS, BenchTask

FLOAT32 = "fp32"
_TELL_SECONDS = 10
_TRIED = 10_000  # elements of a vector that a compressor has to take before anything is trained


class Compressor(Protocol):
    """What a class must have. seed: of random numbers, another one for each client and round."""

    def compress(self, update: Vector, seed: int) -> bytes: ...

    def decompress(self, data: bytes, dimension: int) -> Vector: ...


@dataclass(frozen=True)
class Method:
    """Who is compared: a compressor in a file, or a method of the package by its name. version: of its code."""

    name: str
    version: str
    own: type[Compressor] | None = None

    @staticmethod
    def of(name: str, version: str) -> Method:
        """Checked: ConfigError says what is wrong with a class, and in which file."""
        if not names_file(name) and not name.endswith(".py"):
            parse(name)
            return Method(name, version)
        file = OwnFile.of(name, key="compressor")
        source = file.read()
        found, place = in_file(file, source)
        if not isinstance(found, type):
            raise ConfigError(f"{place} is {found!r}, expected a class with compress and decompress.")
        for method in ("compress", "decompress"):
            expected = getattr(Compressor, method)
            if not callable(getattr(found, method, None)):
                raise ConfigError(f"{place} lacks the method {method}. `adaquantfl bench-method --help` has both.")
            check_signature(place, method, expected, getattr(found, method))
        made = Method(str(file), digest(source)[:16], found)
        _Compressed(made, 0).send(0, 0, np.linspace(-1, 1, _TRIED, dtype=np.float32))
        return made

    @property
    def title(self) -> str:
        return short(self.name)

    def rounds(self, task: BenchTask, seed: int) -> Iterator[Line]:
        """Of a run."""
        rounds = task.rounds if self.name == FLOAT32 else round(MORE_ROUNDS * task.rounds)
        own = {"rule": FLOAT32} if self.own else parse(self.name).settings
        config: Config = load_config(task.source, {**task.settings, **own, "seed": seed, "rounds": rounds})
        return compressed_rounds(config, _Compressed(self, seed).send) if self.own else engine_rounds(config)


class _Compressed:
    """A compressor in a run. Each client has two objects of it."""

    def __init__(self, method: Method, seed: int) -> None:
        self._method, self._seed = method, seed
        self._ends: dict[int, tuple[Compressor, Compressor]] = {}

    def send(self, client: int, round: int, update: Vector) -> Sent:
        if client not in self._ends:
            self._ends[client] = self._call(self._made), self._call(self._made)
        mine, theirs = self._ends[client]
        began = time.perf_counter()
        data: Any = self._call(mine.compress, update.copy(), stream_key(self._seed, round, client))
        seconds = time.perf_counter() - began
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ConfigError(f"{self._where(mine.compress)} {type(data).__name__}, expected bytes.")
        found: Any = np.asarray(self._call(theirs.decompress, bytes(data), len(update)))
        if found.shape != update.shape or found.dtype.kind != "f":
            shown = f"{found.dtype} of shape {found.shape}"
            raise ConfigError(
                f"{self._where(theirs.decompress)} {shown}, expected float32 of shape ({len(update):,},)."
            )
        if not np.isfinite(found).all():
            raise ConfigError(f"{self._where(theirs.decompress)} NaN or infinity for an update that is finite.")
        return Sent(found.astype(np.float32), len(data), seconds)

    def _made(self) -> Compressor:
        assert self._method.own is not None
        return self._method.own()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        name = "__init__" if function == self._made else function.__name__
        file = OwnFile.of(self._method.name, key="compressor").path
        with blamed(file, f"{self._method.title}.{name} raised", ConfigError):
            return function(*arguments)

    def _where(self, function: Callable[..., Any]) -> str:
        return f"{self._method.title}.{function.__name__}{place_of(function)} returned"


@dataclass(frozen=True, kw_only=True)
class Result(Curve):
    """A run. passes and seconds: so far, as `Line` has them. failure: why it stopped early."""

    task: str
    method: str
    version: str
    seed: int
    passes: list[int]
    seconds: list[float]
    failure: str = ""


@dataclass
class Bench:
    """The runs of a folder: one line of JSON for each that is finished."""

    folder: Path
    tell: Callable[[str], None]
    found: dict[tuple[str, str, str, int], Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            results = [Result(**json.loads(line)) for line in text.splitlines()]
        except (OSError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path} cannot be read ({error}). Remove that line, or choose another folder with --out."
            ) from None
        self.found = {(one.task, one.method, one.version, one.seed): one for one in results}

    @property
    def path(self) -> Path:
        return self.folder / "results.jsonl"

    def run(self, tasks: Sequence[str], methods: Sequence[Method], seeds: int) -> None:
        """Play what is missing."""
        for seed in range(seeds):
            for task in tasks:
                for method in methods:
                    if (key := (task, method.name, method.version, seed)) not in self.found:
                        self.found[key] = self._play(TASKS[task], method, seed)
                        self.folder.mkdir(parents=True, exist_ok=True)
                        with self.path.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(asdict(self.found[key])) + "\n")

    def _play(self, task: BenchTask, method: Method, seed: int) -> Result:
        name, lines, failure = f"{task.name}, {method.title}, seed {seed}", list[Line](), ""
        told = began = time.monotonic()
        self.tell(f"{name}: {task.rounds} rounds or some more")
        try:
            for line in method.rounds(task, seed):
                lines.append(line)
                if time.monotonic() > told + _TELL_SECONDS:
                    told = time.monotonic()
                    self.tell(f"{name}: round {line.round}, accuracy {line.value:.1%}, {line.up / 1000:,.0f} kB up")
        except EngineError as error:  # a training that diverges is a result
            failure = str(error)
        last = f"accuracy {lines[-1].value:.1%}, {lines[-1].up / 1000:,.0f} kB up" if lines else "no round"
        self.tell(f"{name}: {last}, {time.monotonic() - began:.0f} s" + (f". {failure}" if failure else ""))
        columns: Any = {key: [getattr(line, key) for line in lines] for key in Line.__dataclass_fields__}
        key: Any = {"task": task.name, "method": method.name, "version": method.version, "seed": seed}
        return Result(accuracy=True, failure=failure, **key, **columns)

    def tables(self, tasks: Sequence[str], methods: Sequence[Method], seeds: int) -> str:
        """A table for each task; a method's means over the seeds."""
        return "\n\n".join(self._table(task, methods, range(seeds)) for task in tasks)

    def _table(self, task: str, methods: Sequence[Method], seeds: Sequence[int]) -> str:
        about, float32 = TASKS[task], methods[0]
        goals = [self.found[task, float32.name, float32.version, seed] for seed in seeds]
        grid = [["method", "kB up", "kB both ways", "rounds", "examples forward", "ms per message", "accuracy, %"]]
        for method in methods:
            runs = [self.found[task, method.name, method.version, seed] for seed in seeds]
            targets = [goal.target(about.rounds) for goal in goals]
            cells = [
                _mean([one.spent(target, which) for one, target in zip(runs, targets, strict=True)], unit, one_more)
                for which, unit, one_more in (("up", 1e3, 1), ("both", 1e3, 1), ("round", 1, 0), ("passes", 1, 0))
            ]
            per_message = [1e3 * one.seconds[-1] / _messages(about, one) for one in runs if one.round]
            finals = [one.final(about.rounds) for one in runs]
            cells += [_mean(per_message or [None], 1, 2), _mean(finals, 0.01, 1)]
            grid.append([method.title, *cells])
        which = "seed 0" if len(seeds) == 1 else f"means of {len(seeds)} seeds"
        return f"{about.title}, until within 0.5 points of float32's final accuracy ({which}):\n{aligned(grid)}"


def _messages(task: BenchTask, run: Result) -> int:
    return run.round[-1] * int(task.settings.get("clients_per_round") or task.settings["clients"])


def _mean(values: Sequence[float | None], unit: float, digits: int) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return f"{len(known)} of {len(values)}" if known else "never"
    return f"{fmean(known) / unit:,.{digits}f}"


def chosen(tasks: str) -> list[str]:
    """The tasks of `--tasks`, each once; ConfigError where there is none of that name.

    >>> chosen("mlp-iid, logistic-iid,mlp-iid")
    ['mlp-iid', 'logistic-iid']
    """
    names = list(dict.fromkeys(name.strip() for name in tasks.split(",") if name.strip()))
    for name in names:
        if name not in TASKS:
            raise ConfigError(unknown("task", name, tuple(TASKS)))
    if not names:
        raise ConfigError(f"--tasks needs at least one of: {', '.join(TASKS)}.")
    return names
