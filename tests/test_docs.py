"""What README and docs show works as they show it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaquantfl.config import KEYS, load_config
from adaquantfl.presets import preset_names

ROOT = Path(__file__).parents[1]


def python_blocks() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (f"{page.name}-{number}", code)
        for page in pages
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    ]


@pytest.mark.parametrize(("name", "code"), python_blocks())
def test_every_python_block_runs(name: str, code: str) -> None:
    exec(compile(code, name, "exec"), {})


def test_every_key_and_preset_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name in (*KEYS, *preset_names()):
        assert f"`{name}`" in text, name


def test_the_recorded_demo_is_the_one_that_make_demo_runs() -> None:
    records = sorted((ROOT / "results" / "demo").glob("*/seed-0/config.toml"))
    assert [path.parts[-3] for path in records] == ["2bit", "4bit", "8bit", "adaquant"]
    for path in records:
        assert load_config(path) == load_config("demo", {"method": path.parts[-3]})


def test_links_to_files_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
