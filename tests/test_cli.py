"""The command line as a person meets it."""

from __future__ import annotations

import argparse
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.cli import build_parser, main
from adaquantfl.report import figures
from support import small_runs

TINY = small_runs.options(small_runs.TINY)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def test_every_help_fits_80_columns_and_its_example_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    everything = build_parser()
    commands = list(parsers(everything))
    assert len(commands) >= 14
    for parser in commands:
        text = parser.format_help()
        assert max(map(len, text.splitlines())) <= 80, text
        if parser.get_default("command") is None:  # it only leads to others
            continue
        (example,) = re.findall(r"^example:\n  adaquantfl (.+)$", text, re.MULTILINE)
        assert example.startswith(parser.prog.removeprefix("adaquantfl "))
        assert everything.parse_args(shlex.split(example)).command is parser.get_default("command")


def test_run_writes_a_record_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "demo", *TINY, "--out", str(tmp_path / "r")]) == 0
    assert "4 rounds" in capsys.readouterr().out
    assert (tmp_path / "r" / "summary.json").is_file()
    assert main(["run", "--resume", str(tmp_path / "r")]) == 0


def test_compare_runs_every_method_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "c"
    arguments = ["compare", "demo", *TINY, "--methods", "adaquant,2bit,fp32", "--seeds", "2", "--out", str(out)]
    assert main(arguments) == 0
    text, said = capsys.readouterr()
    assert "AdaQuantFL" in text
    assert "2-bit" in text
    lines = said.splitlines()
    assert "adaquant seed 0: mlp on fashion-mnist-sample, 2 clients, 4 rounds" in lines
    assert "fp32 seed 1: finished, 6 of 6 runs done" in lines
    for name in ("report.html", "table.md", "loss.png", "loss.pdf", "accuracy.png", "bits.png"):
        assert (out / name).stat().st_size > 0
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*/*/history.jsonl")}
    assert len(stamps) == 6
    monkeypatch.setattr(figures, "draw", lambda *_: [])  # once is enough: it takes longer than the runs
    assert main(arguments) == 0  # finished runs are kept
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert main([*arguments, "--set", "tau=3"]) == 1  # and not mistaken for others
    assert "tau = 2" in capsys.readouterr().err


def test_one_diverging_method_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    arguments = ["compare", "demo", *TINY, "--set", "eta=1e25", "--methods", "2bit,4bit", "--out", str(out)]
    assert main(arguments) == 1
    errors = capsys.readouterr().err
    assert "2bit seed 0 did not finish" in errors
    assert "4bit seed 0 did not finish" in errors
    assert "resume" not in errors.lower()


def test_inspect_shows_what_is_in_a_frame(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    path = tmp_path / "frame"
    path.write_bytes(aq.compress(x, s=3, key=1, codec="fixed"))
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    for word in ("uniform", "fixed", "5,000", "entropy", "non-zero", "C_s", "sparse", "dense"):
        assert word in text
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["inspect", str(path)]) == 1
    assert "checksum" in capsys.readouterr().err
    path.write_bytes(aq.encode_float32(x))
    assert main(["inspect", str(path)]) == 0
    assert "float32" in capsys.readouterr().out


def test_data_list_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    text = capsys.readouterr().out
    for name in ("fashion-mnist", "cifar-10", "fashion-mnist-sample"):
        assert name in text
    assert text.endswith("fashion_mnist_sample.npz\n")


def test_a_terminal_sees_live_progress_and_a_pipe_does_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["run", "demo", *TINY, "--out"]
    assert main([*command, str(tmp_path / "a")]) == 0
    assert "\x1b" not in "".join(capfd.readouterr())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "adaquantfl", *command, str(tmp_path / "b")],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # the other end closed
        pass
    assert process.wait() == 0
    for word in (b"round 4/4", b"loss", b"sent"):
        assert word in seen


def test_import_is_light() -> None:
    code = "import sys, adaquantfl; print([m for m in ('adaquantfl.core', 'torch', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from adaquantfl.cli import main\n"
        "try: main(['run', '--help'])\n"
        "except SystemExit: print([m for m in ('torch', 'matplotlib', 'flwr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.endswith("\n[]\n")


def test_the_core_needs_neither_torch_nor_flower() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['flwr'] = None\n"
        "import numpy as np, adaquantfl as aq\n"
        "acc = aq.Accumulator(4); acc.add(aq.compress(np.ones(4, 'f4'), s=3, key=1), 1.0); acc.result()\n"
        "aq.AdaQuant(s0=2); aq.Fixed(bits=4); aq.theory.bits_per_element(3)\n"
        "try: aq.run('demo')\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert said == "A run needs torch: pip install 'adaquantfl[train]'\n"
