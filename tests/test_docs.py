"""What README and docs show works as they show it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.cli import build_parser, main
from adaquantfl.runs import jobs
from adaquantfl.runs.config import KEYS, Config, config_of, load_config, parse_override, preset_names
from adaquantfl.runs.methods import parse_list
from adaquantfl.training.methods import defaults_of
from support import pages
from support.pages import PAGES, ROOT, Block

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LANGUAGES = {"python", "console", "bash", "toml", "json", "text"}
OUTPUTS = {"output", "output of the demo", "output of a failing rule"}  # the block above; two have tests of their own
FLOWER_KEYS = {"address", "root-certificates", "insecure"}  # of a SuperLink in Flower's own configuration


def runnable(page: Path) -> list[Block]:
    return [one for one in pages.blocks(page) if one.language in ("python", "console", "bash") and not one.left_out]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=pages.name)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for block in pages.blocks(page):
        if block.language == "text" and block.mark == "output":
            assert not pages.differs(printed, block.code), f"{block.place}: this is what it prints now:\n{printed}"
        elif block in runnable(page):
            names = names if block.mark == "continued" else {}
            with contextlib.redirect_stdout(io.StringIO()) as out:
                run(block, names)
            printed = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def run(block: Block, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.code, block.place, "exec"), names)
        return
    for command, *arguments in pages.lines(block.code):
        assert command == "adaquantfl", f"{block.place}: say why {command} is not run, in a comment above the block"
        # Training here takes one process: the result does not depend on it, and it starts at once.
        alone = ["--set=workers=1"] if {"run", "compare"} & set(arguments) and "--resume" not in arguments else []
        assert main([*arguments, *alone]) == 0, block.place


def test_every_block_has_a_language_that_is_checked() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            assert block.language in LANGUAGES or block.page == "docs/wire-format.md", block.place  # it shows bytes
            assert block.language != "text" or block.mark in OUTPUTS, f"{block.place}: the output of what?"


def test_excerpts_are_parts_of_the_files_that_they_name() -> None:
    excerpts = [block for page in PAGES for block in pages.blocks(page) if block.mark.startswith("excerpt: ")]
    assert len(excerpts) >= 3
    for block in excerpts:
        assert block.code in (ROOT / block.mark.removeprefix("excerpt: ")).read_text(), block.place


@pytest.mark.parametrize("page", [page for page in PAGES if list(pages.commands(page))], ids=pages.name)
def test_every_command_in_a_block_is_one(page: Path) -> None:
    for place, (program, *arguments) in pages.commands(page):
        if program == "make":
            assert set(arguments) <= TARGETS, place
        else:
            check_command(place, arguments)


def check_command(place: str, arguments: list[str]) -> None:
    """It parses, and a preset with its changes makes a configuration."""
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit:
        pytest.fail(f"{place}: {arguments} is mistyped")
    if arguments[0] not in ("run", "compare") or options.preset not in preset_names():
        return
    if any(".py:" in word for word in arguments):  # files of the reader's own; tests/runs/test_own_method.py has some
        return
    changes = dict(parse_override(item) for item in options.set)
    load_config(options.preset, changes)
    if arguments[0] == "compare":
        assert jobs.plan(options.preset, parse_list(options.methods), options.seeds, changes, Path("out")), place


def test_every_toml_block_is_a_configuration() -> None:
    found = [block for page in PAGES for block in pages.blocks(page) if block.language == "toml"]
    assert found
    for block in found:
        values = tomllib.loads(block.code)
        if "superlink" in values:
            assert all(set(there) <= FLOWER_KEYS for there in values["superlink"].values()), block.place
        else:
            config_of(values)


def test_bash_blocks_are_bash() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            if block.language == "bash":
                subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)


def test_every_public_name_is_in_the_reference() -> None:
    from adaquantfl import flower
    from adaquantfl import torch as ours

    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    elsewhere = {"error_bound", "optimal_levels", "paper_bits"}  # on the page of adaquantfl.theory
    for name in (
        *aq.__all__,
        *(f"flower.{name}" for name in flower.__all__),
        *(f"torch.{name}" for name in ours.__all__),
        "theory",
    ):
        there = f"::: adaquantfl.{name}\n" in reference or f"`adaquantfl.{name}`" in reference or name in elsewhere
        assert there, name
    assert all(f"aq.{name}`" in reference for name in elsewhere)


def test_every_page_is_in_the_sites_navigation() -> None:
    navigation = json.dumps(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    listed = set(re.findall(r'"([\w/-]+\.md)"', navigation))
    assert listed == {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}


def test_every_key_and_preset_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name in (*KEYS, *preset_names()):
        assert f"`{name}`" in text, name


def test_the_defaults_in_the_tables_are_those_of_the_code() -> None:
    defaults = {field.name: field.default for field in fields(Config)}
    tables = {"rule": ("adaquant", "auto", "dadaquant", "feddq"), "quantizer": ("stc",),
              "step": ("adam", "trimmed-mean", "krum"), "downlink": ("exact", "late"),
              "private": ("masked", "central")}  # fmt: skip
    for kind, names in tables.items():
        for name in reversed(names):
            own = defaults_of(kind, {"name": name})
            defaults |= {f"{kind}.{key}": value for key, value in own.items()}
    settings, _, _ = (ROOT / "docs" / "configuration.md").read_text().partition("## What a run leaves behind")
    rows = re.findall(r"^- (`[^(]*`)[^(]* \((.+?)\): ", settings, re.MULTILINE)
    shown = {}
    for names, values in rows:
        if set(keys := re.findall(r"`([\w.-]+)`", names)) <= defaults.keys():
            shown |= dict(zip(keys, (json.loads(value.strip("`")) for value in values.split(", ")), strict=True))
    assert shown == {key: defaults[key] for key in shown}
    said = set(re.findall(r"`([\w.]+)`", settings))
    unsaid = {key for key in defaults if key not in said and key not in {"rule.smoothing", "rule.time", "rule.clients"}}
    assert unsaid <= {"rule.alone", "rule.undo", "step.beta2"}, "seldom set: docs/configuration.md leaves them out"


def test_links_lead_somewhere() -> None:
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", *pages.OTHERS):
        for target, anchor in re.findall(r"\]\(([^)#: ]*)(?:#([^)]*))?\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor and there.suffix == ".md":
                assert anchor in headings(there), f"{page.name}: {target}#{anchor}"


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub and the site make them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def test_the_documentation_stays_small() -> None:
    """16 pages and 25,000 words: who adds a page takes one away."""
    assert len(pages.DOCS) <= 16
    assert sum(len(page.read_text().split()) for page in pages.DOCS) <= 25_000
