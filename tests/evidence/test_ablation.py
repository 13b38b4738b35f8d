"""The ablation: bytes to a smoothed loss, the best constant found afterwards, the page says what the records say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from evidence.pages import ablation_page
from evidence.pages.marked import written
from evidence.studies import ablation

TASK = "MLP, 8 clients"


def record(root: Path, method: str, losses: list[float], each: int, failed: bool = False) -> None:
    path = root / ablation.folder(TASK) / ablation.folder(method) / "seed-0"
    path.mkdir(parents=True)
    lines = [{"round": k + 1, "loss": loss, "wire_bytes_up": each * (k + 1)} for k, loss in enumerate(losses)]
    (path / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    if failed:
        (path / "failure.json").write_text("{}")


def falling(rounds: int = 40, to: float = 0.01) -> list[float]:
    return [to ** ((k + 1) / rounds) for k in range(rounds)]


def test_one_lucky_evaluation_reaches_nothing(tmp_path: Path) -> None:
    lucky = [1.0] * 40
    lucky[5] = 1e-9
    record(tmp_path, "float32", falling(), 4000)
    record(tmp_path, ablation.OURS, falling(), 10)
    record(tmp_path, "s = 1, centroid, balanced", lucky, 1)
    assert ablation.load(tmp_path, TASK)["s = 1, centroid, balanced"][0].bytes_to(0.5) is None
    assert ablation.best_constant(tmp_path, TASK, 0.75) is None
    assert ["s = 1, centroid, balanced", "never", "—", "never", "—", "1"] in ablation.table(tmp_path, TASK)


def test_the_best_constant_is_the_one_with_the_fewest_bytes(tmp_path: Path) -> None:
    record(tmp_path, "float32", falling(), 4000)
    record(tmp_path, ablation.OURS, falling(), 10)
    record(tmp_path, "s = 1, centroid, balanced", falling(), 20)
    record(tmp_path, "s = 0.5, centroid, balanced", falling(), 5)
    record(tmp_path, "s = 0.1, centroid, balanced", [2.0, 3.0, 9.0], 1, failed=True)
    assert ablation.best_constant(tmp_path, TASK, 0.25) == ("s = 0.5, centroid, balanced", pytest.approx(2.0))
    record(tmp_path / "worse", "float32", falling(), 4000)
    record(tmp_path / "worse", ablation.OURS, [1.0] * 40, 10)
    record(tmp_path / "worse", "s = 1, centroid, balanced", falling(), 20)
    assert ablation.best_constant(tmp_path / "worse", TASK, 0.25) == ("s = 1, centroid, balanced", math.inf)
    rows = ablation.table(tmp_path, TASK)
    assert [row[0] for row in rows[1:3]] == ["s = 0.5, centroid, balanced", ablation.OURS]
    assert rows[-1][:2] == ["s = 0.1, centroid, balanced (1 of 1 diverged)", "never"]
    assert ablation.table(tmp_path, "CNN, 8 clients") == []


def test_bytes_are_contents_surveys_and_heads(tmp_path: Path) -> None:
    path = tmp_path / ablation.folder(TASK) / ablation.folder(ablation.OURS) / "seed-0"
    path.mkdir(parents=True)
    lines: list[dict[str, object]] = [
        {"wire_bytes_up": 600, "payload_bytes_up": 100, "clients": 5, "harm": 0.1, "undone": True},
        {"wire_bytes_up": 1000, "payload_bytes_up": 250, "clients": 5},
    ]
    (path / "history.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert ablation.spending(tmp_path)[1:] == [[TASK, "1", "25%", "10%", "65%", "1 of 2", "1"]]


@pytest.mark.parametrize("method", ablation.METHODS)
def test_every_run_can_be_set_up(method: str, tmp_path: Path) -> None:
    for task in ablation.TASKS:
        assert ablation.job(task, method, 1, tmp_path).config.seed == 1


def test_the_page_shows_the_records() -> None:
    page = ablation_page.PAGE.read_text(encoding="utf-8")
    assert written(page, ablation_page.blocks()) == page, "run: python evidence/pages/ablation_page.py"
