"""Runs from Python: named arguments, objects and functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.report import figures

TINY: dict[str, Any] = {"model": "mlp", "clients": 2, "rounds": 2, "tau": 1, "workers": 1}


def test_a_rule_may_be_a_name_a_table_or_an_object(tmp_path: Path) -> None:
    rules = ["adaquant", {"name": "adaquant"}, aq.AdaQuant()]
    runs = [aq.run("demo", tmp_path / str(k), rule=rule, **TINY) for k, rule in enumerate(rules)]  # type: ignore[arg-type]
    assert len({run.summary["model_sha256"] for run in runs if run.summary}) == 1
    assert {run.label for run in runs} == {"AdaQuantFL"}
    assert repr(runs[0]) == f"RunRecord(AdaQuantFL, seed 0, round 2, {tmp_path / '0'})"


def test_a_comparison_is_a_list_of_records_and_a_report_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import adaquantfl.report.page  # the package and the function share a name

    monkeypatch.setattr(figures, "draw", lambda *_: [])  # it takes longer than the runs
    runs = aq.compare("demo", "2bit,4bit[eta=0.05]", tmp_path, settings=TINY)
    assert [run.label for run in runs] == ["2-bit", "4-bit"]
    assert aq.report(runs, tmp_path / "page") == tmp_path / "page" / "report.html"
    assert (tmp_path / "page" / "history.csv").is_file()
    assert aq.load(runs[0].path).label == "2-bit"
    assert adaquantfl.report.page.write_report


def test_a_folder_that_resuming_did_not_start_in_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    done = aq.run("demo", out, **{**TINY, "rounds": 3})
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    def fails(config: object) -> Any:
        raise aq.EngineError("no client can be reached")

    from adaquantfl.runs import loop

    with pytest.raises(aq.EngineError, match="no client"):
        loop.resume(out, {"rounds": 9}, connect=fails)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert aq.run("demo", out, **{**TINY, "rounds": 3}).summary == done.summary


def test_a_configuration_that_was_edited_by_hand_is_not_resumed(tmp_path: Path) -> None:
    from adaquantfl.runs import loop

    aq.run("demo", tmp_path, **TINY)
    file = tmp_path / "config.toml"
    file.write_text(file.read_text().replace("eta = 0.1", "eta = 0.2"))
    with pytest.raises(aq.CheckpointError, match=r"config.toml has eta = 0.2, but .* with eta = 0.1. Put that back"):
        loop.resume(tmp_path, {"rounds": 5})
    file.write_text(file.read_text().replace("eta = 0.2", "eta = 0.1").replace("s0 = 2", "s0 = 4"))
    with pytest.raises(aq.CheckpointError, match="has rule = "):
        loop.resume(tmp_path, {"rounds": 5})
