"""What each command does: one function a command, whose docstring is its help; the work itself lives in the package.

What is heavy is imported inside: `adaquantfl --help` must not wait for PyTorch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import AdaQuantError, CheckpointError, Diverged, EngineError
from ..runs.config import load_config, parse_override, run_config
from ..runs.play import default_folder
from .extras import require

if TYPE_CHECKING:
    from ..runs.jobs import Job


NEXT = """Next: `adaquantfl watch {out}` shows the page in a browser. The same command with another --out and
--set partition=sorted gives each client other classes. Your own model and data: docs/own-task.md."""


def run(options: argparse.Namespace) -> None:
    """Train one configuration. The run's folder gets its configuration, history, model and summary."""
    from ..engines.launch import is_client, launch
    from ..runs.directory import check_changes, check_free
    from ..training.catalogue import check_task

    changes = dict(parse_override(item) for item in options.set)
    config = None
    if options.resume is not None:
        if options.preset is not None or options.out is not None:
            _mistyped("run --resume DIR takes its configuration from DIR: leave PRESET and --out away.")
        out = options.resume
        if not is_client(options.engine):
            check_changes(changes)
            run_config(out, changes)
    elif options.preset is None:
        _mistyped(
            "run needs a PRESET, a FILE.toml, a FILE.py:FUNCTION or --resume DIR. 'adaquantfl run --help' has more."
        )
    else:
        config = load_config(options.preset, changes)
        out = options.out or default_folder(options.preset, config)
        if not is_client(options.engine):
            check_task(config)
            check_free(out)
    require("torch", *(["flwr"] if options.engine == "flower" else []))
    _starting(options)
    from ..report import progress
    from ..runs.loop import Request

    if is_client(options.engine) and not options.quiet:
        from ..engines.gloo.client import show_log

        show_log()

    request = Request(out, config, changes if config is None else {})
    with progress.shown(options.quiet) as display, _resumable(request.out, options.engine):
        summary = launch(options.engine, request, display.of())
    if summary is not None:  # a client among several hosts has nothing to say
        print(progress.closing_line(summary, request.out))


def compare(options: argparse.Namespace) -> int:
    """Train several methods on one preset and compare what they sent.

    The same command again keeps finished runs and resumes interrupted ones.
    """
    from ..runs import jobs
    from ..runs.methods import parse_list

    changes = dict(parse_override(item) for item in options.set)
    out = options.out or Path("runs") / f"compare-{Path(options.preset).stem}"
    plan = jobs.plan(options.preset, parse_list(options.methods), options.seeds, changes, out)
    return _carry_out(plan, out, options)


def _carry_out(plan: Sequence[Job], out: Path, options: argparse.Namespace) -> int:
    """Run what is missing of a comparison, and report."""
    from ..runs import jobs

    require("torch")
    jobs.check(plan)
    _starting(options)
    from ..report import progress
    from ..report.write import write_all

    failures = []
    with progress.shown(options.quiet, plan) as display, _repeatable():
        for job in plan:
            failure = ""
            try:
                jobs.play(job, display.of(job.name))
            except CheckpointError:
                raise
            except AdaQuantError as error:  # one method's divergence does not take the others with it
                failure = f"{job.name} did not finish: {error}"
                failures.append(failure)
            display.ended(job, failure)
    for failure in failures:
        print(f"adaquantfl: {failure}", file=sys.stderr)
    if len(failures) < len(plan):
        print(write_all([out], out, _tell))
        print(NEXT.format(out=out))
    return 1 if failures else 0


def methods(options: argparse.Namespace) -> None:
    """List the rules, quantizers, codecs and server steps, each with its source."""
    from ..codecs.registry import names as codec_names
    from ..protocol.step import STEPS
    from ..quantizers.registry import find, names
    from ..rules.registry import BASELINES
    from ..rules.registry import methods as known_rules
    from ..runs.methods import lines

    baselines = BASELINES.keys() - {"1bit", "16bit"}
    known = [(name, rule) for name, (rule, _) in known_rules().items() if name not in baselines]
    print("Rules (`rule`; compare --methods RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]):")
    print(lines("rule", ((name, _about(rule), rule.reference) for name, rule in known)))
    print("\nQuantizers (`quantizer`; `quantizer.norm` is l2 or linf where both are known):")
    print(lines("quantizer", ((one.name, one.traits.about, one.traits.reference) for one in map(find, names()))))
    print(f"\nCodecs (`codec`), lossless: {', '.join(codec_names())}. auto takes the smallest.")
    steps = [STEPS.find(name) for name in STEPS.names()]
    print("\nServer steps (`step`):")
    print(lines("step", ((step.name, _about(step), step.reference) for step in steps)))


def _about(method: type) -> str:
    """The first line of what a class says of itself."""
    return (method.__doc__ or "").strip().partition("\n")[0]


def reproduce(options: argparse.Namespace) -> int:
    """Run a panel of the paper's figures 2 and 3, which are presets, and report.

    It takes hours. It can be stopped at any time: the same command skips finished runs and resumes interrupted ones.
    """
    from ..runs.reproduce import effort, plan

    out = options.out or Path("runs") / options.panel
    changes = dict(parse_override(item) for item in options.set)
    runs = plan(options.panel, options.methods, options.seeds, changes, out)
    if not options.quiet:
        print(effort(runs), file=sys.stderr, flush=True)
    return _carry_out(runs, out, options)


def report(options: argparse.Namespace) -> None:
    """Write figures, tables of what each method sent to reach a loss, and a self-contained HTML page.

    Folders are searched two levels deep. Damaged runs are left out by name.
    """
    require("matplotlib")
    from ..report.write import write_all

    formats = [name.strip() for name in options.format.split(",")]
    print(write_all(options.runs, options.out or options.runs[0], _tell, options.methods, formats))


def export(options: argparse.Namespace) -> None:
    """Write the model of a run, or of its last checkpoint, to a file that plain PyTorch reads."""
    from ..runs import model_file

    model_file.export(options.run, options.out)
    print(f"{options.out} holds the model; plain PyTorch reads it without this package (docs/own-task.md).")


def watch(options: argparse.Namespace) -> None:
    """Serve the report page of runs to this machine alone, and keep it up to date. Ctrl-C ends it."""
    from ..report import watch

    if not 0 <= options.port < 65536:
        _mistyped("watch --port takes a number from 0 to 65535.")
    with suppress(KeyboardInterrupt), watch.serve(options.runs, options.port) as server:
        print(f"Watching at {server.address} (Ctrl-C ends it)", flush=True)
        server.serve_forever()


def data_list(options: argparse.Namespace) -> None:
    """List the data sets, and which are on this machine."""
    from ..training import catalogue, datasets

    for spec in catalogue.SPECS.values():
        path = datasets.path_of(spec)
        here, size = path.is_file(), path.stat().st_size if path.is_file() else spec.size
        state = f"here: {path}" if here else f"not here; get it with: adaquantfl data get {spec.name}"
        print(f"{spec.name}  ({size / 1e6:.0f} MB)  {spec.description}\n    licence: {spec.licence}\n    {state}")


def data_get(options: argparse.Namespace) -> None:
    """Fetch a data set, check it, and keep it in the cache."""
    from ..training import catalogue

    catalogue.find(options.name)
    require("pooch", "rich")
    from ..report import progress
    from ..training import download

    with progress.download() as show:
        path = download.get(options.name, progress=show, force=options.force)
    print(f"{options.name} is in {path}")


def bench(options: argparse.Namespace) -> None:
    """Measure the speed of the codecs, next to that of copying the vector."""
    from ..threads import set_threads
    from . import bench

    if options.threads is not None and options.threads < 1:
        _mistyped("bench --threads takes a whole number from 1.")
    set_threads(options.threads)
    for line in bench.table():
        print(line, flush=True)


def bench_method(options: argparse.Namespace) -> None:
    """Train the bench's tasks with a compressor of your own, and say what it sends, both ways, until it is as good
    as float32.

    A compressor is a class in a file, with compress(self, update, seed), which returns bytes, and decompress(self,
    data, dimension), which returns float32. The same command again skips finished runs.
    """
    from .. import __version__

    if options.seeds < 1:
        _mistyped("bench-method --seeds takes a whole number from 1.")
    require("torch")
    _starting(options)
    from ..bench.method import FLOAT32, Bench, Method, chosen

    tasks = chosen(options.tasks)
    names = ",".join([FLOAT32, options.methods, options.beside]).split(",")
    methods = [Method.of(name, __version__) for name in dict.fromkeys(name.strip() for name in names) if name]
    bench = Bench(options.out, (lambda _: None) if options.quiet else _tell)
    with _repeatable():
        bench.run(tasks, methods, options.seeds)
    print(bench.tables(tasks, methods, options.seeds))


def inspect(options: argparse.Namespace) -> None:
    """Show the header of a frame and statistics of its levels."""
    from ..codecs.inspection import describe

    print(describe(sys.stdin.buffer.read() if options.frame == "-" else Path(options.frame).read_bytes()))


def _starting(options: argparse.Namespace) -> None:
    """Something to see at once: importing PyTorch takes seconds."""
    if not options.quiet:
        print("Starting: loading PyTorch, the data and the model.", file=sys.stderr, flush=True)


@contextmanager
def _repeatable() -> Iterator[None]:
    """Says that the same command resumes where it was stopped."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command continues from here.", file=sys.stderr)
        raise


@contextmanager
def _resumable(out: Path, engine: str) -> Iterator[None]:
    """Says how to resume a run that is stopped or fails, where resuming helps."""
    resume = f"adaquantfl run --resume {out}" + (f" --engine {engine}" if engine != "local" else "")
    try:
        yield
    except KeyboardInterrupt:
        if (out / "config.toml").is_file():
            print(f"Stopped. Resume with: {resume}", file=sys.stderr)
        raise
    except Diverged:  # the same seed gives the same rounds
        print(f"The finished rounds are in {out}. Resuming would end in the same way.", file=sys.stderr)
        raise
    except (EngineError, OSError, MemoryError):
        if (out / "config.toml").is_file():
            print(f"The finished rounds are kept. Resume with: {resume}", file=sys.stderr)
        raise


def _tell(sentence: str) -> None:
    print(f"adaquantfl: {sentence}", file=sys.stderr)


def _mistyped(message: str) -> NoReturn:
    print(f"adaquantfl: {message}", file=sys.stderr)
    raise SystemExit(2)
