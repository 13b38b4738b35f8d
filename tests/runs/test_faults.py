"""A run on a machine that fails ends with a sentence, and resuming it ends in the same model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
        check_case(case, honest["model"])
    return len(cases)


def check_case(case: dict[str, Any], model: str) -> None:
    assert "Traceback" not in case["said"] + case["resumed said"], case
    assert case["code"] == 0 or "adaquantfl: " in case["said"], case
    assert case["early"] in ("", model), case
    assert (case["resumed"], case["model"]) == (0, model), case
    assert "power" in case["fault"] or case["early"] == model or case["code"] == 1, case


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("engine", "kinds", "faults"),
    [("local", ("write=5,20", "sync=4", "rename=2", "allocation=300", "power=8"), 8), ("gloo", ("write=5",), 1)],
)
def test_a_fault_of_the_machine_costs_no_finished_round(
    library: Path, tmp_path: Path, engine: str, kinds: tuple[str, ...], faults: int
) -> None:
    assert check(library, tmp_path, engine, *kinds) == faults


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", ["local", "gloo"])
@pytest.mark.parametrize("kind", [*faulty_runs.KINDS, "power"])
def test_every_fault_of_the_machine_ends_in_the_same_model(
    library: Path, tmp_path: Path, engine: str, kind: str
) -> None:
    assert check(library, tmp_path, engine, kind) >= 5
