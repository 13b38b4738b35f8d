"""What can be typed: every command with its options, and the function that carries it out."""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from .. import __version__
from ..bench.tasks import TASKS
from ..engines.launch import ENGINES
from ..runs.config import KEYS, preset_names
from ..runs.reproduce import METHODS, PANELS
from . import commands

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_SOURCE = "PRESET|FILE.toml|FILE.py:FUNCTION"
_SOURCE_HELP = "the name of a preset, a TOML file of keys, or a task of your own (docs/own-task.md)"

EPILOG = """examples:
  adaquantfl run demo                                a first run on bundled data
  adaquantfl run demo --set rule=4bit --set seed=1
  adaquantfl run --resume runs/demo-adaquant-seed0   after an interruption
  adaquantfl compare demo --methods adaquant,2bit,4bit,8bit
  adaquantfl run my_task.py:task --set clients=4     your own model and data
  adaquantfl watch runs/demo-adaquant-seed0          its page in the browser
  adaquantfl data get fashion-mnist

Each command has its own help: adaquantfl run --help
"""


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser: argparse.ArgumentParser = _Parser(
        prog="adaquantfl",
        description="Federated learning with adaptively quantized updates.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"adaquantfl {__version__}")
    chosen = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_training(chosen)
    _add_reading(chosen)
    _add_measuring(chosen)
    return parser


def _command(to: Commands, name: str, function: Any, example: str, more: str = "") -> argparse.ArgumentParser:
    """The parser of one command: `function` carries it out, and its docstring is the help.

    example: a command that can be typed. The first sentence of the help stands in the list of all commands.
    """
    about = " ".join((function.__doc__ or "").split())
    parser = to.add_parser(
        name,
        help=about.partition(". ")[0].rstrip("."),
        description=_folded(about),
        epilog="\n\n".join([f"example:\n  adaquantfl {example}", *([_folded(more)] if more else [])]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    return parser


def _folded(text: str) -> str:
    return textwrap.fill(text, 79, break_on_hyphens=False)


def _add_training(to: Commands) -> None:
    presets = f"Presets: {', '.join(preset_names())}. docs/configuration.md explains their keys."
    run = _command(to, "run", commands.run, "run demo --set rule=4bit --set rounds=20 --out runs/first", presets)
    run.add_argument("preset", nargs="?", metavar=_SOURCE, help=_SOURCE_HELP)
    engine = "what carries the messages between server and clients (default: %(default)s)"
    run.add_argument("--engine", default="local", choices=ENGINES.names(), help=engine)
    _add_folder(run, "--resume", "resume the run in this folder from its last checkpoint")
    _add_common(run, "the run's folder (default: runs/PRESET-RULE-seedN)")

    example = "compare demo --methods adaquant,2bit,4bit --seeds 3 --out runs/mine"
    compare = _command(to, "compare", commands.compare, example)
    compare.add_argument("preset", metavar=_SOURCE, help=_SOURCE_HELP)
    methods = (
        "separated by commas, each RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]; 'adaquantfl methods' lists the "
        "names; FILE.py:CLASS is a rule or a quantizer of your own (default: %(default)s)"
    )
    compare.add_argument("--methods", default="adaquant,2bit,4bit,8bit,16bit,fp32", metavar="LIST", help=methods)
    _add_seeds(compare)
    _add_common(compare, "the comparison's folder (default: runs/compare-PRESET)")

    reproduce = _command(to, "reproduce", commands.reproduce, "reproduce fmnist-cnn-iid --methods adaquant,2bit")
    reproduce.add_argument("panel", metavar="PANEL", help=f"one of {', '.join(PANELS)}")
    methods = "as in compare (default: %(default)s)"
    reproduce.add_argument("--methods", default=METHODS, metavar="LIST", help=methods)
    _add_seeds(reproduce)
    _add_common(reproduce, "the panel's folder (default: runs/PANEL)")


def _add_reading(to: Commands) -> None:
    report = _command(to, "report", commands.report, "report runs/compare-demo --methods adaquant,4bit --format pdf")
    _add_runs(report)
    _add_folder(report, "--out", "where to write (default: the first RUN_DIR)")
    report.add_argument("--methods", default="", metavar="LIST", help="only these, as in compare (default: all)")
    formats = "of figures: png, pdf, svg, separated by commas (default: %(default)s)"
    report.add_argument("--format", default="png,pdf", metavar="LIST", help=formats)

    watch = _command(to, "watch", commands.watch, "watch runs/compare-demo --port 8640")
    _add_runs(watch)
    port = "the port; 0 takes any free one (default: %(default)s)"
    watch.add_argument("--port", type=int, default=8640, metavar="N", help=port)

    export = _command(to, "export", commands.export, "export runs/demo-adaquant-seed0 model.safetensors")
    export.add_argument("run", type=Path, metavar="RUN_DIR", help="the run's folder")
    export.add_argument("out", type=Path, metavar="OUT", help="a file that ends in .safetensors or .pt")

    inspect = _command(to, "inspect", commands.inspect, "inspect update.frame")
    inspect.add_argument("frame", metavar="FRAME", help="a file that holds one frame; - for standard input")


def _add_measuring(to: Commands) -> None:
    _command(to, "methods", commands.methods, "methods")
    data = to.add_parser("data", help="list or fetch data sets", description="List or fetch data sets.")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _command(actions, "list", commands.data_list, "data list")
    get = _command(actions, "get", commands.data_get, "data get fashion-mnist")
    get.add_argument("name", metavar="NAME", help="fashion-mnist or cifar-10")
    get.add_argument("--force", action="store_true", help="fetch it again even if it is there")

    bench = _command(to, "bench", commands.bench, "bench --threads 1")
    bench.add_argument("--threads", type=int, metavar="N", help="threads of the core (default: all cores)")

    more = f"Tasks: {', '.join(TASKS)}. A run takes seconds, of the CNN minutes. docs/own-task.md has more."
    example = "bench-method my_compressor.py:TopK --tasks mlp-iid,logistic-sorted"
    bench = _command(to, "bench-method", commands.bench_method, example, more)
    bench.add_argument("methods", metavar="FILE.py:CLASS,...", help="compressors, separated by commas")
    bench.add_argument("--tasks", default="mlp-iid", metavar="LIST", help="separated by commas (default: %(default)s)")
    beside = "methods of this package to compare with, as `compare --methods` takes them (default: %(default)s)"
    bench.add_argument("--beside", default="auto,adaquant", metavar="LIST", help=beside)
    _add_seeds(bench)
    _add_folder(bench, "--out", "where finished runs are kept (default: runs/bench-method)")
    bench.set_defaults(out=Path("runs") / "bench-method")
    _add_quiet(bench)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run folders, or folders of run folders")


def _add_folder(parser: argparse.ArgumentParser, option: str, help: str) -> None:
    parser.add_argument(option, type=Path, metavar="DIR", help=help)


def _add_seeds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (default: %(default)s)")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress display, only the result")


def _add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """What all commands that train presets take. out: what is written to --out."""
    changes = "override a key of the preset; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=changes)
    _add_folder(parser, "--out", out)
    _add_quiet(parser)


class _Parser(argparse.ArgumentParser):
    """Answers a key that is typed as an option with how to set it."""

    def error(self, message: str) -> NoReturn:
        found = re.match(r"unrecognized arguments: --([\w-]+)", message)
        key = found[1].replace("-", "_") if found else ""
        hint = f". Keys of the configuration follow --set: --set {key}=VALUE." if key in KEYS else ""
        super().error(message + hint)
