"""A run on a machine that fails ends with a sentence, and resuming it ends in the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaquantfl.cli import main
from adaquantfl.training import datasets
from support import faulty_runs

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What makes calls fail."""
    built = faulty_runs.build(tmp_path_factory.mktemp("faults"))
    if built is None:
        pytest.skip("Faults are injected with LD_PRELOAD, which needs Linux and a C compiler.")
    return built


def check(library: Path, folder: Path, engine: str, *kinds: str) -> int:
    """How many faults there were. Each of them must end well."""
    search = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": search}
    command = [sys.executable, "-m", "support.faulty_runs", str(folder), engine, *kinds]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    honest, *cases = map(json.loads, done.stdout.splitlines())
    assert honest["code"] == 0, honest
    for case in cases:
        check_case(case, honest["model"], engine)
    return len(cases)


LOST = ("so that the model will not be the same", "Not every client got back")


def check_case(case: dict[str, Any], model: str, engine: str) -> None:
    aborted = "cannot allocate memory for thread-local data: ABORT" in case["said"]  # by glibc, not by us
    assert "Traceback" not in case["said"] + case["resumed said"], case
    assert "clock" not in case["fault"] or case["code"] == 0, case
    assert case["code"] == 0 or "adaquantfl: " in case["said"] or aborted, case
    # A client's process died with what it had kept, and a sentence says so.
    named = (
        engine == "gloo"
        and "allocation" in case["fault"]
        and any(words in case["said"] + case["resumed said"] for words in LOST)
    )
    assert case["early"] in ("", model) or named, case
    assert case["resumed"] == 0, case
    assert case["model"] == model or named, case
    assert "power" in case["fault"] or case["early"] or case["code"] == 1 or aborted, case


@pytest.mark.timeout(1200)
def test_a_fault_of_the_machine_costs_no_finished_round(library: Path, tmp_path: Path) -> None:
    assert check(library, tmp_path, "local", "full=5", "power=8", "resumed-sync=2") == 5


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["local", "gloo"])
@pytest.mark.parametrize("when", ["", "resumed-"])
@pytest.mark.parametrize("kind", [*faulty_runs.FAULTS, "power"])
def test_every_fault_of_the_machine_ends_in_the_same_model(
    library: Path, tmp_path: Path, engine: str, kind: str, when: str
) -> None:
    assert check(library, tmp_path, engine, when + kind) >= 4


PYTORCH = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")


@pytest.mark.parametrize(
    ("place", "error", "size"),
    [
        ("adaquantfl.cli.build_parser", PYTORCH, " (you tried to allocate 9 bytes)"),
        ("adaquantfl.training.datasets.np.load", MemoryError("9 bytes"), " (9 bytes)"),
    ],
)
def test_memory_that_ran_out_is_called_so_and_not_damage(
    place: str,
    error: Exception,
    size: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise error

    datasets._load.cache_clear()
    monkeypatch.setattr(place, no_memory)
    assert main(["run", "demo", "--out", str(tmp_path / "run"), "--quiet"]) == 1
    said = f"adaquantfl: There is not enough memory{size}. Nothing that was saved before is lost.\n"
    assert capsys.readouterr().err == said
