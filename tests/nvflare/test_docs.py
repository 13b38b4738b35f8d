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


def test_the_json_names_the_filter_with_its_default() -> None:
    (block,) = [block for block in pages.blocks(PAGE) if block.language == "json"]
    (entry,) = json.loads(block.code)["task_result_filters"]
    (filter,) = entry["filters"]
    made = instantiate_class(filter["path"], filter["args"])
    assert isinstance(made, nvflare.QuantizeFilter)
    assert (made.error, made.quantizer) == (None, "fitted")


def test_the_settings_of_the_page_are_the_defaults() -> None:
    (code,) = [block.code for block in pages.blocks(PAGE) if "most_elements=" in block.code]
    for name, setting in inspect.signature(nvflare.QuantizeFilter).parameters.items():
        if name != "exact":
            assert f"{name}={json.dumps(setting.default).replace('null', 'None')}," in code


@pytest.mark.parametrize("name", nvflare.__all__)
def test_every_setting_is_on_the_page(name: str) -> None:
    for setting in inspect.signature(getattr(nvflare, name)).parameters:
        assert f"- **{setting}.** " in PAGE.read_text()
    assert f"::: adaquantfl.nvflare.{name}\n" in (pages.ROOT / "docs" / "reference" / "python.md").read_text()


def test_a_job_s_files_have_only_the_settings_that_were_changed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from nvflare.job_config.api import FedJob
    from nvflare.job_config.defs import FilterType

    from adaquantfl.nvflare import DequantizeFilter, QuantizeFilter

    job = FedJob("job")
    job.to_server(DequantizeFilter(), filter_type=FilterType.TASK_RESULT, tasks=["train"])
    job.to_clients(QuantizeFilter(error=0.5), filter_type=FilterType.TASK_RESULT, tasks=["train"])
    job.set_app_packages(["adaquantfl"])
    job.export_job(str(tmp_path))
    (file,) = tmp_path.rglob("config_fed_client.json")
    (entry,) = json.loads(file.read_text())["task_result_filters"]
    assert entry["filters"] == [{"path": "adaquantfl.nvflare.client.QuantizeFilter", "args": {"error": 0.5}}]
    assert not list(tmp_path.rglob("custom"))
