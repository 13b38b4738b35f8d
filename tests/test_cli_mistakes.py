"""Mistyped commands: answered before PyTorch is loaded, in words that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adaquantfl.cli import main
from adaquantfl.cli.extras import EXTRAS
from support import small_runs
from support.run_files import write_run

ROOT = Path(__file__).parents[1]
TINY = small_runs.options(small_runs.TINY)

# Command, exit code, words. Each is refused by a process that has not loaded PyTorch: all by one, which saves time.
MISTAKES = [
    ("run dmo", 1, "Did you mean 'demo'"),
    ("run mine.toml", 1, "There is no file"),
    ("run mine.py:task", 1, "There is no file"),
    (f"run {'x' * 300}", 1, "too long"),
    ("run demo --set taus=3", 1, "Did you mean 'tau'"),
    ("run demo --set tau=many", 1, "tau must be an integer"),
    ("run demo --set seed=99999999999999999999", 1, "2^63"),
    ("run demo --set rule=3bits", 1, "Did you mean '3bit'"),
    ("run demo --set device=gpu", 1, "use 'cpu'"),
    ("run demo --set model=resnet18", 1, "3x32x32"),
    ("run demo --set dataset=mnist", 1, "fashion-mnist"),
    ("run demo --set clients=20000", 1, "20000"),
    ("run demo --out taken", 1, "already holds a run"),
    ("run demo --out /dev/null", 1, "is a file"),
    ("run --resume nowhere", 1, "holds no run"),
    ("run --resume taken --set eta=0.2", 1, "rounds that are done"),
    ("compare demo --methods adaquant[rule.s0=0]", 1, "s0"),
    ("compare demo --set rule=2bit", 1, "--methods"),
    ("compare demo --seeds 0", 1, "at least one"),
    ("report nowhere", 1, "nowhere"),
    ("export nowhere model.pt", 1, "holds no run"),
    ("data get cifar10", 1, "cifar-10"),
    ("inspect nowhere", 1, "No such file"),
    ("run", 2, "needs a PRESET"),
    ("run demo --resume x", 2, "leave PRESET"),
    ("run demo --rounds 3", 2, "--set rounds=VALUE"),
    ("walk", 2, "invalid choice"),
]
PLAY = """
import contextlib, io, json, sys
from adaquantfl.cli import main
answers = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(command.split())
        except SystemExit as stop:
            code = stop.code
    loaded = [name for name in ("torch", "matplotlib", "flwr") if name in sys.modules]
    answers.append([code, errors.getvalue(), loaded])
print(json.dumps(answers))
"""


def test_a_mistake_is_refused_with_a_sentence_before_pytorch_is_loaded(tmp_path: Path) -> None:
    write_run(tmp_path / "taken", losses=[1.0], finished=False, dataset="fashion-mnist-sample")
    command = [sys.executable, "-c", PLAY, json.dumps([line for line, _, _ in MISTAKES])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    for (line, code, words), (got, said, loaded) in zip(MISTAKES, json.loads(done.stdout), strict=True):
        assert (got, loaded) == (code, []), line
        assert words in said, line
        assert code == 2 or len(said.splitlines()) == 1, said
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_resuming_is_advised_where_there_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", losses=[1.0], finished=False, dataset="fashion-mnist-sample")
    assert main(["run", "demo", "--out", str(run)]) == 1
    assert f"Resume it with: adaquantfl run --resume {run}" in capsys.readouterr().err


def test_resuming_is_not_advised_where_it_would_end_in_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = [*TINY, "--set=eta=1e25", "--set=rounds=30"]
    assert main(["run", "demo", *wild, "--out", str(tmp_path / "run")]) == 1
    errors = capsys.readouterr().err
    assert "Resuming would end in the same way" in errors
    assert "--resume" not in errors


def test_every_module_is_in_the_extra_that_is_named_for_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {"PIL": "pillow", "tomli_w": "tomli-w", "httpx": "flwr", "ray": "flwr"}  # Flower brings the last two
    for module, extra in EXTRAS.items():
        assert any(needed.startswith(packages.get(module, module)) for needed in extras[extra]), module
