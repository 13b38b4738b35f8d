"""examples/notebook runs from top to bottom, and is committed with its outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import adaquantfl as aq
from support.pages import differs
from support.processes import HANG_SECONDS

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook" / "adaquantfl.ipynb"


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text for output in outputs if output.output_type == "stream"]


@pytest.mark.slow
def test_it_runs_and_prints_what_it_was_committed_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = [str(Path(aq.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, search)))  # the kernel takes the package that we test
    committed = nbformat.read(NOTEBOOK, as_version=4)
    again = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(again, timeout=HANG_SECONDS, resources=place).execute()  # raises on an error
    assert [differs(new, old) for new, old in zip(printed(again), printed(committed), strict=True)] == [""] * 3
    assert list(tmp_path.iterdir()) == []  # it tidies up


def test_it_can_be_read_without_running_it() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    pictures = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3
    assert NOTEBOOK.stat().st_size < 300_000
