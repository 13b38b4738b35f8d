"""docs/nvflare.md: every block works, and every setting is on the page."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

pytest.importorskip("nvflare.apis")

from nvflare.fuel.utils.class_utils import instantiate_class

from adaquantfl import nvflare
from support import pages

PAGE = pages.ROOT / "docs" / "nvflare.md"


def test_every_block_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (tmp_path / "client.py").write_text("")
    monkeypatch.chdir(tmp_path)
    blocks = pages.blocks(PAGE)
    assert all(block.mark == "needs: nvflare" for block in blocks)
    for block in blocks:
        if block.language == "python":
            exec(compile(block.code, block.place, "exec"), {})


def test_the_json_names_the_filter() -> None:
    (block,) = [block for block in pages.blocks(PAGE) if block.language == "json"]
    for (entry,) in json.loads(block.code).values():
        (filter,) = entry["filters"]
        assert isinstance(instantiate_class(filter["path"], filter["args"]), nvflare.ClientFilter)


def test_the_settings_of_the_page_are_all_and_have_the_defaults() -> None:
    (code,) = [block.code for block in pages.blocks(PAGE) if "downlink=" in block.code]
    for name, setting in inspect.signature(nvflare.ServerFilter).parameters.items():
        assert f"- **{name}.** " in PAGE.read_text()
        if name != "exact":
            assert f"{name}={json.dumps(setting.default)}," in code


def test_a_job_s_files_have_the_filters_at_both_ends_and_only_changed_settings(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from nvflare.job_config.api import FedJob
    from nvflare.job_config.defs import FilterType

    job = FedJob("job")
    for kind in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
        job.to_server(nvflare.ServerFilter(rule="4bit"), filter_type=kind, tasks=["train"])
        job.to_clients(nvflare.ClientFilter(), filter_type=kind, tasks=["train"])
    job.set_app_packages(["adaquantfl"])
    job.export_job(str(tmp_path))
    for side, name, args in (
        ("client", "client.ClientFilter", {}),
        ("server", "server.ServerFilter", {"rule": "4bit"}),
    ):
        (file,) = tmp_path.rglob(f"config_fed_{side}.json")
        for kind in ("task_data_filters", "task_result_filters"):
            (entry,) = json.loads(file.read_text())[kind]
            assert entry["filters"] == [{"path": f"adaquantfl.nvflare.{name}", "args": args}]
    assert not list(tmp_path.rglob("custom"))
