"""The command line. Each command is one function; what they do lives in the package.

Exit codes: 0 done, 1 a sentence on the terminal says what went wrong, 2 the command itself was mistyped, 130 stopped
by Ctrl-C or SIGTERM (the run can be resumed).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from .config import ENGINES, preset_names
from .errors import AdaQuantError

EPILOG = """examples:
  adaquantfl run demo                                  a first run, on data that ships with the package
  adaquantfl run demo --set method=4bit --set seed=1   the same with a fixed level and another seed
  adaquantfl run --resume runs/demo-adaquant-seed0     go on after an interruption
  adaquantfl compare demo --methods adaquant,2bit,4bit,8bit
  adaquantfl watch runs/demo-adaquant-seed0            its page in the browser, while it goes on
  adaquantfl data get fashion-mnist
"""

# What the core does without, and the extra that brings it.
_EXTRA = {
    **dict.fromkeys(("torch", "matplotlib", "rich", "tomli_w", "PIL"), "train"),
    **dict.fromkeys(("flwr", "httpx", "ray"), "train,flower"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = options.command(options)
        return int(code or 0)
    except AdaQuantError as error:
        print(f"adaquantfl: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        extra = _EXTRA[error.name]
        print(f"adaquantfl: this command needs {error.name}: pip install 'adaquantfl[{extra}]'", file=sys.stderr)
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"adaquantfl: {error.strerror or error}{where}. Nothing that was saved before is lost.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="adaquantfl",
        description="Federated learning with adaptively quantized updates.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="train one configuration",
        description="Train one configuration.",
        epilog=f"presets: {', '.join(preset_names())}. Their keys are explained in docs/configuration.md.",
    )
    run.add_argument("preset", nargs="?", metavar="PRESET|FILE.toml", help="a preset's name, or a file of your own")
    _add_set(run)
    run.add_argument(
        "--engine", default="local", choices=ENGINES, help="what carries the messages (default: %(default)s)"
    )
    run.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/PRESET-METHOD-seedN)")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in this folder")
    _add_quiet(run)
    run.set_defaults(command=_run)

    compare = commands.add_parser(
        "compare",
        help="train several methods and compare the bits they need",
        description="Train several methods on one preset; finished runs are kept, interrupted ones go on.",
    )
    compare.add_argument("preset", metavar="PRESET|FILE.toml", help="a preset's name, or a file of your own")
    compare.add_argument(
        "--methods",
        default="adaquant,2bit,4bit,8bit,16bit,fp32",
        metavar="LIST",
        help="separated by commas: RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]], as 'adaquantfl methods' lists them "
        "(default: %(default)s)",
    )
    compare.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (default: %(default)s)")
    compare.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="runs at a time, each on one core (default: %(default)s)"
    )
    _add_set(compare)
    compare.add_argument(
        "--out", type=Path, metavar="DIR", help="the comparison's folder (default: runs/compare-PRESET)"
    )
    _add_quiet(compare)
    compare.set_defaults(command=_compare)

    methods = commands.add_parser(
        "methods", help="the rules, quantizers and codecs by name", description="All that can be compared, by name."
    )
    methods.set_defaults(command=_methods)

    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and record them",
        description="Run a panel of the paper's figures 2 and 3, or one of our own studies. What has a "
        "record is skipped; what was interrupted goes on. Hours of work: it can be stopped and started at any time.",
    )
    reproduce.add_argument("panel", metavar="PANEL", help="a preset of the paper, all, sensitivity, or rivals")
    reproduce.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="M",
        help="only this method; may be repeated (default: all six)",
    )
    _add_set(reproduce)
    reproduce.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="finished runs (default: results/paper, .../sensitivity, .../rivals)",
    )
    reproduce.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="runs in progress (default: runs/paper, .../sensitivity, .../rivals)",
    )
    _add_quiet(reproduce)
    reproduce.set_defaults(command=_reproduce)

    report = commands.add_parser(
        "report",
        help="figures, tables and a page from finished or running runs",
        description="Write figures, the table of bits to each loss, and a self-contained HTML page.",
    )
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run folders, or folders of run folders")
    report.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: the first RUN_DIR)")
    report.set_defaults(command=_report)

    watch = commands.add_parser(
        "watch",
        help="the page of a run that is going on, in the browser",
        description="Serve the report of runs on this machine's loopback, up to date while they go on. Ctrl-C ends it.",
    )
    watch.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run folders, or folders of run folders")
    watch.add_argument("--port", type=int, metavar="N", help="0 takes any free one (default: 8640)")
    watch.set_defaults(command=_watch)

    data = commands.add_parser("data", help="list or fetch data sets", description="List or fetch data sets.")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="what there is, and what is on this machine")
    listing.set_defaults(command=_data_list)
    get = actions.add_parser("get", help="fetch a data set, check it and keep it in the cache")
    get.add_argument("name", metavar="NAME", help="fashion-mnist or cifar-10")
    get.add_argument("--force", action="store_true", help="fetch it anew even if it is there")
    get.set_defaults(command=_data_get)

    flower = commands.add_parser(
        "flower",
        help="the parts of a Flower deployment on several hosts",
        description="The parts of a Flower deployment on several hosts: docs/flower-engine.md has the steps.",
    )
    parts = flower.add_subparsers(metavar="PART", required=True)
    app = parts.add_parser("app", help="write the folder that 'flwr run' takes")
    app.add_argument("folder", type=Path, metavar="DIR", help="a folder that does not exist yet")
    app.set_defaults(command=_flower_app)
    node = parts.add_parser("node", help="be one client: a SuperNode that keeps its data and model between rounds")
    node.add_argument("--superlink", required=True, metavar="HOST:PORT", help="the server's SuperLink")
    node.add_argument("--client", required=True, type=int, metavar="I", help="this client's number, from 0")
    node.add_argument("--clients", required=True, type=int, metavar="N", help="how many there are, as in the preset")
    secured = node.add_mutually_exclusive_group()
    secured.add_argument("--root-certificates", type=Path, metavar="FILE", help="the CA that signed the SuperLink's")
    secured.add_argument("--insecure", action="store_true", help="no TLS: for a trusted network only")
    node.add_argument("--key", type=Path, metavar="FILE", help="this node's private key, where nodes are registered")
    node.add_argument(
        "--poll",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="between questions for messages; more where hundreds of nodes share a SuperLink (default: %(default)s)",
    )
    node.set_defaults(command=_flower_node)

    bench = commands.add_parser(
        "bench",
        help="this machine's codec speed",
        description="Measure every codec, beside copying the vector and plain NumPy and PyTorch versions.",
    )
    bench.add_argument("--quick", action="store_true", help="the smallest dimension only: seconds instead of minutes")
    bench.add_argument("--threads", type=int, metavar="N", help="threads that kernels use (default: all cores)")
    bench.set_defaults(command=_bench)

    inspect = commands.add_parser(
        "inspect", help="what is in a message", description="Show a frame's header and what its levels look like."
    )
    inspect.add_argument("frame", metavar="FRAME", help="a file that holds one frame; - for standard input")
    inspect.set_defaults(command=_inspect)
    return parser


def _run(options: argparse.Namespace) -> int:
    _starting(options)
    from .config import load_config, parse_override
    from .experiments import progress
    from .experiments.launch import launch
    from .experiments.runner import Request

    changes = dict(parse_override(item) for item in options.set)
    if options.resume is not None:
        if options.preset is not None or options.out is not None:
            _mistyped("run --resume DIR takes its configuration from DIR: leave PRESET and --out away.")
        request = Request(options.resume, changes=changes)
    elif options.preset is None:
        _mistyped("run needs a PRESET, a FILE.toml or --resume DIR. 'adaquantfl run --help' lists what it takes.")
    else:
        config = load_config(options.preset, changes)
        out = options.out or Path("runs") / f"{Path(options.preset).stem}-{config.method}-seed{config.seed}"
        request = Request(out, config)
    with progress.shown(options.quiet) as observer, _resumable(request.out, options.engine):
        summary = launch(options.engine, request, observer)
    if summary is not None:  # a client among several hosts has nothing to say
        print(progress.closing_line(summary, request.out))
    return 0


def _compare(options: argparse.Namespace) -> int:
    _starting(options)
    from .config import parse_override
    from .experiments import comparison, progress
    from .experiments.methods import parse_list

    changes = dict(parse_override(item) for item in options.set)
    if options.parallel < 1:
        _mistyped("compare --parallel takes a whole number from 1.")
    out = options.out or Path("runs") / f"compare-{Path(options.preset).stem}"
    plan = comparison.plan(options.preset, parse_list(options.methods), options.seeds, changes, out)
    if options.parallel > 1:
        with _repeatable():
            failures = comparison.carry_out_in_parallel(plan, options.parallel, _silent if options.quiet else _tell)
    else:
        with progress.shown(options.quiet) as observer, _repeatable():
            failures = comparison.carry_out(plan, observer)
    for failure in failures:
        print(f"adaquantfl: {failure}", file=sys.stderr)
    if len(failures) < len(plan):
        print(comparison.report([out], out))
    return 1 if failures else 0


def _methods(options: argparse.Namespace) -> int:
    from .config import CODECS
    from .experiments.methods import lines
    from .quantizers.registry import QUANTIZERS
    from .schedules.registry import BASELINES, RULES

    shown = {name: rule for name, rule in RULES.items() if name not in BASELINES or name in ("1bit", "16bit")}
    print("Rules (`method`; compare --methods RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]):")
    print(lines((name, rule.line, rule.reference) for name, rule in shown.items()))
    print("\nQuantizers (`quantizer`; `norm` is l2 or linf where both are known):")
    print(lines((one.name, one.about, one.reference) for one in QUANTIZERS.values()))
    print(f"\nCodecs (`codec`), lossless: {', '.join(CODECS)}. auto takes the smallest.")
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    _starting(options)
    from .config import parse_override
    from .errors import EngineError
    from .experiments import progress, reproduce, rivals, sensitivity

    changes = dict(parse_override(item) for item in options.set)
    if options.panel == sensitivity.NAME:
        work, records = options.work or sensitivity.WORK, options.records or sensitivity.RECORDS
        jobs = sensitivity.jobs(options.method, changes, work)
    elif options.panel == rivals.NAME:
        work, records = options.work or rivals.WORK, options.records or rivals.RECORDS
        jobs = rivals.jobs(options.method, changes, work)
    else:
        work, records = options.work or reproduce.WORK, options.records or reproduce.RECORDS
        jobs = reproduce.panel_jobs(options.panel, options.method, changes, work)
    failed = False
    for job in jobs:
        name = job.out.relative_to(work)
        try:
            with progress.shown(options.quiet) as observer, _repeatable():
                record = reproduce.carry_out(job, records, work, observer)
        except EngineError as error:  # a training that diverges is a result, and does not take the others with it
            failed = True
            reproduce.record_failure(records / name, job.out, str(error))
            print(f"adaquantfl: {name} did not finish: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{name}: recorded in {record}" if record else f"{name}: has a record already", flush=True)
    return 1 if failed else 0


def _report(options: argparse.Namespace) -> int:
    from .experiments import comparison

    print(comparison.report(options.runs, options.out or options.runs[0]))
    return 0


def _watch(options: argparse.Namespace) -> int:
    from .experiments import watch

    port = watch.PORT if options.port is None else options.port
    if not 0 <= port < 65536:
        _mistyped("watch --port takes a number from 0 to 65535.")
    with suppress(KeyboardInterrupt), watch.serve(options.runs, port) as server:
        print(f"Watching at {server.address} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
    return 0


def _data_list(options: argparse.Namespace) -> int:
    from .tasks import datasets

    for info in datasets.available():
        state = f"here: {info.where}" if info.present else f"not here; get it with: adaquantfl data get {info.name}"
        print(f"{info.name}  ({info.size / 1e6:.0f} MB)  {info.description}\n    licence: {info.licence}\n    {state}")
    return 0


def _data_get(options: argparse.Namespace) -> int:
    from .experiments import progress
    from .tasks import datasets

    with progress.download() as show:
        path = datasets.get(options.name, progress=show, force=options.force)
    print(f"{options.name} is in {path}")
    return 0


def _flower_app(options: argparse.Namespace) -> int:
    from .experiments import flower_run

    flower_run.write_app(options.folder)
    print(f"{options.folder} is ready for 'flwr run'; docs/flower-engine.md has the steps.")
    return 0


def _flower_node(options: argparse.Namespace) -> int:
    from .engines.flower import node

    arguments = ["--superlink", options.superlink]
    arguments += ["--node-config", f"partition-id={options.client} num-partitions={options.clients}"]
    arguments += ["--insecure"] if options.insecure else []
    arguments += ["--root-certificates", str(options.root_certificates)] if options.root_certificates else []
    arguments += ["--auth-supernode-private-key", str(options.key)] if options.key else []
    return node.main(arguments, options.poll)


def _bench(options: argparse.Namespace) -> int:
    from .experiments import bench
    from .threads import set_threads

    if options.threads is not None and options.threads < 1:
        _mistyped("bench --threads takes a whole number from 1.")
    set_threads(options.threads)
    rows = []
    for row in bench.measure(bench.DIMENSIONS[:1] if options.quick else bench.DIMENSIONS):
        rows.append(row)
        print(f"measured d = {row.d:,}, s = {row.s}, {row.codec}", file=sys.stderr)
    print(bench.table(rows))
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from .codecs.inspection import describe

    try:
        data = sys.stdin.buffer.read() if options.frame == "-" else Path(options.frame).read_bytes()
    except OSError as error:
        print(f"adaquantfl: {options.frame} cannot be read: {error.strerror}.", file=sys.stderr)
        return 1
    print(describe(data))
    return 0


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the preset; may be repeated"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress display, only the result")


def _starting(options: argparse.Namespace) -> None:
    """Something to see at once: importing PyTorch takes seconds."""
    if not options.quiet:
        print("Starting: loading PyTorch, the data and the model.", file=sys.stderr, flush=True)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass


@contextmanager
def _repeatable() -> Iterator[None]:
    """Says that the same command goes on where it was stopped."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from here.", file=sys.stderr)
        raise


@contextmanager
def _resumable(out: Path, engine: str) -> Iterator[None]:
    """Says how to go on when a run is stopped or fails."""
    go_on = f"adaquantfl run --resume {out}" + (f" --engine {engine}" if engine != "local" else "")
    try:
        yield
    except KeyboardInterrupt:
        if (out / "config.toml").is_file():
            print(f"Stopped. Go on with: {go_on}", file=sys.stderr)
        raise
    except AdaQuantError:
        if (out / "checkpoint").is_dir():
            print(f"The finished rounds are kept. Go on with: {go_on}", file=sys.stderr)
        raise


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from . import __version__

        print(f"adaquantfl {__version__}")
        parser.exit()


def _mistyped(message: str) -> NoReturn:
    print(f"adaquantfl: {message}", file=sys.stderr)
    raise SystemExit(2)
