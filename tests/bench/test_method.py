"""A compressor of the user's own on the bench: the how-to works, runs are kept, and mistakes name the user's line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import adaquantfl as aq
from adaquantfl.bench import method, tasks
from adaquantfl.bench.method import Bench, Method
from adaquantfl.cli import main
from adaquantfl.training import methods
from support import pages

BLOCKS = pages.blocks(pages.ROOT / "docs" / "own-task.md")
(CODE,) = [block.code for block in BLOCKS if block.mark == "file: my_compressor.py"]
TASK = "logistic-iid"
IDENTITY = """
import numpy as np

class Same:
    def compress(self, update, seed): return update.tobytes()
    def decompress(self, data, dimension): return np.frombuffer(data, np.float32)
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the compressor's file into the working directory; tasks have six rounds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(tasks.TASKS, TASK, replace(tasks.TASKS[TASK], rounds=5))
    methods._module.cache_clear()

    def file(code: str) -> str:
        Path("my_compressor.py").write_text(code)
        return "my_compressor.py"

    yield file
    methods._module.cache_clear()


def test_the_how_to_works_as_written(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(CODE)
    command = ["bench-method", "my_compressor.py:TopK", f"--tasks={TASK}", "--beside=auto"]
    assert main(command) == 0
    out, said = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["fp32", "TopK", "auto"]
    assert f"{TASK}, TopK, seed 0: accuracy" in said
    assert main(command) == 0
    assert capsys.readouterr() == (out, "Starting: loading PyTorch, the data and the model.\n")
    kept = Path("runs/bench-method/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"][-1] for line in kept] == [5, 6, 6]
    write(CODE + "\n# changed")
    assert main([*command, "--quiet"]) == 0
    assert len(Path("runs/bench-method/results.jsonl").read_text().splitlines()) == 4


def test_a_compressor_that_leaves_nothing_out_is_float32_and_its_bytes_are_those_of_the_updates(write: Write) -> None:
    one, float32 = Method.of(f"{write(IDENTITY)}:Same", "1"), Method.of("fp32", "1")
    bench = Bench(Path("out"), lambda _: None)
    bench.run([TASK], [float32, one], 1)
    theirs, ours = (bench.found[TASK, each.name, each.version, 0] for each in (one, float32))
    assert theirs.value[:5] == ours.value
    assert theirs.up == [4 * 7_850 * 8 * round for round in theirs.round]
    assert theirs.passes == [8 * 5 * 32 * round for round in theirs.round]
    assert 0 < ours.up[-1] - theirs.up[4] < 70 * 8 * 5, "headers and checksums"
    assert theirs.seconds == sorted(theirs.seconds)
    assert theirs.seconds[-1] > 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "return update.tobytes()",
            "return update",
            r"Same.compress \(my_compressor.py, line 5\) returned ndarray, exp",
        ),
        (
            "return update.tobytes()",
            "return 1 / 0",
            r"Same.compress raised: ZeroDivisionError.*.py, line 5",
        ),
        (
            "np.frombuffer(data, np.float32)",
            "np.zeros(3)",
            r"line 6\) returned float64 of shape \(3,\), exp",
        ),
        ("np.frombuffer(data, np.float32)", "np.full(dimension, np.nan)", r"line 6\) returned NaN or infinity"),
        ("def decompress", "def unpack", "Same in my_compressor.py lacks the method decompress"),
        ("update, seed)", "update)", r"Write def compress\(self, update, seed\)"),
        ("class Same:", "class Same:\n    def __init__(self, k): pass", "Same.__init__ raised: TypeError"),
        ("class Same", "class Other", "There is no class named 'Same'. The valid names are: Other"),
        ("class Same:", "class Same(:", "my_compressor.py cannot be run: SyntaxError"),
    ],
)
def test_a_mistake_is_named_before_anything_is_trained(write: Write, old: str, new: str, words: str) -> None:
    assert old in IDENTITY
    file = write(IDENTITY.replace(old, new))
    with pytest.raises(aq.AdaQuantError, match=words):
        Method.of(f"{file}:Same", "1")


def test_what_is_mistyped_is_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench-method", f"{write(IDENTITY)}:Same", "--quiet"]
    for arguments, words in (
        ([*command, "--tasks=mlp-idd"], "Did you mean 'mlp-iid'"),
        ([*command, "--tasks=,"], "--tasks needs at least one of"),
        ([*command, "--beside=foo"], "There is no rule named 'foo'"),
        (["bench-method", "my_compressor.py"], "such as 'my_compressor.py:MyCompressor'"),
        (["bench-method", "none.py:Same"], "There is no file"),
    ):
        assert main(arguments) == 1
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--seeds=0"])


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"task": ')
    with pytest.raises(aq.CheckpointError, match="Remove that line, or choose another folder"):
        method.Bench(tmp_path, lambda _: None)


def test_a_run_that_diverges_is_a_result(write: Write) -> None:
    far = IDENTITY.replace("np.frombuffer(data, np.float32)", "np.full(dimension, 1e38, np.float32)")
    one, float32 = Method.of(f"{write(far)}:Same", "1"), Method.of("fp32", "1")
    bench = Bench(Path("out"), lambda _: None)
    bench.run([TASK], [float32, one], 1)
    assert "0 of 8 clients answered" in bench.found[TASK, one.name, one.version, 0].failure
    assert "never" in bench.tables([TASK], [float32, one], 1)
