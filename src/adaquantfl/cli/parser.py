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
_WIDTH = 79  # of the texts that argparse does not fold


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
    for add in (
        _add_run,
        _add_compare,
        _add_methods,
        _add_reproduce,
        _add_report,
        _add_watch,
        _add_export,
        _add_data,
        _add_bench,
        _add_bench_method,
        _add_inspect,
    ):
        add(chosen)
    return parser


def _command(
    to: Commands, name: str, function: Any, about: str, example: str, more: str = ""
) -> argparse.ArgumentParser:
    """The parser of one command, and the function that carries it out. example: a command that can be typed.

    The first sentence of `about` stands for the command in the list of all.
    """
    texts = [textwrap.fill(more, _WIDTH, break_on_hyphens=False)] if more else []
    parser = to.add_parser(
        name,
        help=about.partition(". ")[0].rstrip("."),
        description=textwrap.fill(about, _WIDTH, break_on_hyphens=False),
        epilog="\n\n".join([f"example:\n  adaquantfl {example}", *texts]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    return parser


def _add_run(to: Commands) -> None:
    about = "Train one configuration. The run's folder gets its configuration, history, model and summary."
    presets = f"Presets: {', '.join(preset_names())}. docs/configuration.md explains their keys."
    example = "run demo --set rule=4bit --set rounds=20 --out runs/first"
    run = _command(to, "run", commands.run, about, example, presets)
    run.add_argument("preset", nargs="?", metavar=_SOURCE, help=_SOURCE_HELP)
    _add_set(run)
    run.add_argument(
        "--engine",
        default="local",
        choices=ENGINES.names(),
        help="what carries the messages between server and clients (default: %(default)s)",
    )
    _add_folder(run, "--out", "the run's folder (default: runs/PRESET-RULE-seedN)")
    _add_folder(run, "--resume", "resume the run in this folder from its last checkpoint")
    _add_quiet(run)


def _add_compare(to: Commands) -> None:
    about = (
        "Train several methods on one preset and compare what they sent. The same command again keeps finished runs "
        "and resumes interrupted ones."
    )
    example = "compare demo --methods adaquant,2bit,4bit --seeds 3 --out runs/mine"
    compare = _command(to, "compare", commands.compare, about, example)
    compare.add_argument("preset", metavar=_SOURCE, help=_SOURCE_HELP)
    compare.add_argument(
        "--methods",
        default="adaquant,2bit,4bit,8bit,16bit,fp32",
        metavar="LIST",
        help="separated by commas, each RULE[+QUANTIZER][@CODEC][[KEY=VALUE,...]]; 'adaquantfl methods' lists the "
        "names; FILE.py:CLASS is a rule or a quantizer of your own (default: %(default)s)",
    )
    _add_number(compare, "--seeds", "seeds 0 to N - 1 (default: %(default)s)", default=1)
    _add_set(compare)
    _add_folder(compare, "--out", "the comparison's folder (default: runs/compare-PRESET)")
    _add_quiet(compare)


def _add_methods(to: Commands) -> None:
    about = "List the rules, quantizers, codecs and server steps, each with its source."
    _command(to, "methods", commands.methods, about, "methods")


def _add_reproduce(to: Commands) -> None:
    about = (
        "Run a panel of the paper's figures 2 and 3, which are presets, and report. It takes hours. It can be stopped "
        "at any time: the same command skips finished runs and resumes interrupted ones."
    )
    example = "reproduce fmnist-cnn-iid --methods adaquant,2bit"
    reproduce = _command(to, "reproduce", commands.reproduce, about, example)
    reproduce.add_argument("panel", metavar="PANEL", help=f"one of {', '.join(PANELS)}")
    methods = "methods separated by commas (default: %(default)s)"
    reproduce.add_argument("--methods", default=METHODS, metavar="A,B,...", help=methods)
    reproduce.add_argument("--seeds", type=int, default=1, metavar="N", help="runs per method (default: 1)")
    _add_set(reproduce)
    _add_folder(reproduce, "--out", "the panel's folder (default: runs/PANEL)")
    _add_quiet(reproduce)


def _add_report(to: Commands) -> None:
    about = (
        "Write figures, tables of what each method sent to reach a loss, and a self-contained HTML page. Folders are "
        "searched two levels deep. Damaged runs are left out by name."
    )
    example = "report runs/compare-demo --format pdf --size 3.4x2.4 --latex"
    report = _command(to, "report", commands.report, about, example)
    _add_runs(report)
    _add_folder(report, "--out", "where to write (default: the first RUN_DIR)")
    report.add_argument("--methods", default="", metavar="LIST", help="only these, as in compare (default: all)")
    formats = "of figures: png, pdf, svg, separated by commas (default: %(default)s)"
    report.add_argument("--format", default="png,pdf", metavar="LIST", help=formats)
    report.add_argument("--size", metavar="WxH", help="of each figure in inches, such as 3.4x2.4 for a paper's column")
    report.add_argument(
        "--font", type=float, default=11, metavar="PT", help="size of text (default: %(default)s points)"
    )
    report.add_argument("--latex", action="store_true", help="write the tables as table.tex too")


def _add_watch(to: Commands) -> None:
    about = "Serve the report page of runs to this machine alone, and keep it up to date. Ctrl-C ends it."
    watch = _command(to, "watch", commands.watch, about, "watch runs/compare-demo --port 8640")
    _add_runs(watch)
    _add_number(watch, "--port", "the port; 0 takes any free one (default: 8640)")


def _add_export(to: Commands) -> None:
    about = "Write the model of a run, or of its last checkpoint, to a file that plain PyTorch reads."
    export = _command(to, "export", commands.export, about, "export runs/demo-adaquant-seed0 model.safetensors")
    export.add_argument("run", type=Path, metavar="RUN_DIR", help="the run's folder")
    export.add_argument("out", type=Path, metavar="OUT", help="a file that ends in .safetensors or .pt")


def _add_data(to: Commands) -> None:
    data = to.add_parser("data", help="list or fetch data sets", description="List or fetch data sets.")
    actions = data.add_subparsers(metavar="ACTION", required=True)
    _command(actions, "list", commands.data_list, "List the data sets, and which are on this machine.", "data list")
    about = "Fetch a data set, check it, and keep it in the cache."
    get = _command(actions, "get", commands.data_get, about, "data get fashion-mnist")
    get.add_argument("name", metavar="NAME", help="fashion-mnist or cifar-10")
    get.add_argument("--force", action="store_true", help="fetch it again even if it is there")


def _add_bench(to: Commands) -> None:
    about = "Measure the speed of the codecs, next to that of copying the vector."
    bench = _command(to, "bench", commands.bench, about, "bench --threads 1")
    _add_number(bench, "--threads", "threads of the core (default: all cores)")


def _add_bench_method(to: Commands) -> None:
    about = (
        "Train the bench's tasks with a compressor of your own, and say what it sends, both ways, until it is as good "
        "as float32. A compressor is a class in a file, with compress(self, update, seed), which returns bytes, and "
        "decompress(self, data, dimension), which returns float32. The same command again skips finished runs."
    )
    example = "bench-method my_compressor.py:TopK --tasks mlp-iid,logistic-sorted"
    more = f"Tasks: {', '.join(TASKS)}. A run takes seconds, of the CNN minutes. docs/own-task.md has more."
    bench = _command(to, "bench-method", commands.bench_method, about, example, more)
    bench.add_argument("methods", metavar="FILE.py:CLASS,...", help="compressors, separated by commas")
    bench.add_argument("--tasks", default="mlp-iid", metavar="LIST", help="separated by commas (default: %(default)s)")
    beside = "methods of this package to compare with, as `compare --methods` takes them (default: %(default)s)"
    bench.add_argument("--beside", default="auto,adaquant", metavar="LIST", help=beside)
    _add_number(bench, "--seeds", "seeds 0 to N - 1 (default: %(default)s)", default=1)
    _add_folder(bench, "--out", "where finished runs are kept (default: runs/bench-method)")
    bench.set_defaults(out=Path("runs") / "bench-method")
    _add_quiet(bench)


def _add_inspect(to: Commands) -> None:
    about = "Show the header of a frame and statistics of its levels."
    inspect = _command(to, "inspect", commands.inspect, about, "inspect update.frame")
    inspect.add_argument("frame", metavar="FRAME", help="a file that holds one frame; - for standard input")


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run folders, or folders of run folders")


def _add_folder(parser: argparse.ArgumentParser, option: str, help: str) -> None:
    parser.add_argument(option, type=Path, metavar="DIR", help=help)


def _add_number(parser: argparse.ArgumentParser, option: str, help: str, default: int | None = None) -> None:
    parser.add_argument(option, type=int, default=default, metavar="N", help=help)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the preset; may be repeated"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress display, only the result")


class _Parser(argparse.ArgumentParser):
    """Answers a key that is typed as an option with how to set it."""

    def error(self, message: str) -> NoReturn:
        found = re.match(r"unrecognized arguments: --([\w-]+)", message)
        key = found[1].replace("-", "_") if found else ""
        hint = f". Keys of the configuration follow --set: --set {key}=VALUE." if key in KEYS else ""
        super().error(message + hint)
