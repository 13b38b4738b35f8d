"""What README and docs show works as they show it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import site_pages

import adaquantfl as aq
from adaquantfl.cli import build_parser, main
from adaquantfl.report import tables
from adaquantfl.runs import jobs
from adaquantfl.runs.config import KEYS, Config, config_of, load_config, parse_override
from adaquantfl.runs.methods import parse, parse_list
from adaquantfl.runs.presets import preset_names
from adaquantfl.runs.records import find_runs
from support import pages
from support.pages import PAGES, ROOT, Block

# Blocks that are not run, by page; above each its page says why.
NOT_RUN = {
    "docs/downlink.md": 1,
    "docs/how-to/pytorch.md": 1,
    "docs/how-to/hosts.md": 2,
    "docs/how-to/transport.md": 1,
    "docs/how-to/own-method.md": 1,
    "docs/how-to/reproduce.md": 2,
    "docs/index.md": 1,
    "docs/own-task.md": 1,
    "docs/security.md": 2,
    "docs/tutorial.md": 1,
    "docs/when-not-to.md": 1,
}
# Figures that a page quotes of another one: the page, its words, the source, its words. A new record changes both.
QUOTED = [
    ("how-to/choose.md", "| 1 | 2.0002 | 0.0080 | 0.0111 |", "performance.md", "| 1.7 M | 1 | dense | 0.0111 |"),
    ("how-to/choose.md", "| 15 | 5.0002 | 0.0859 | 0.0886 |", "performance.md", "| 1.7 M | 15 | dense | 0.0886 |"),
    ("how-to/choose.md", "| 255 | 9.0002 | 0.7963 | 0.7891 |", "performance.md", "| 1.7 M | 255 | dense | 0.7891 |"),
    (
        "how-to/choose.md",
        "| 65535 | 17.0002 | 13.2408 | 7.7350 |",
        "performance.md",
        "| 1.7 M | 65535 | dense | 7.7350 |",
    ),
    ("how-to/choose.md", "1/81 of float32's", "downlink.md", "| 1/81.5 |"),
    ("how-to/reproduce.md", "3.05 s", "performance.md", "A round took\n3.05 s"),
    (
        "measurements.md",
        "in 168 of 168",
        "peers.md",
        "168 comparisons. AdaQuantFL sends fewer bytes at no larger an error in 168 ",
    ),
    ("measurements.md", "took 103.1% of", "how-to/hosts.md", "a round took 103.1% of the local engine's time"),
    (
        "measurements.md",
        "200 rounds of 50 of 10,000 clients (d = 25,450) took 55.2 s on 2 workers",
        "performance.md",
        "200 rounds of 50 of 10,000 clients (d = 25,450) took 55.2 s on 2 workers",
    ),
    ("measurements.md", "1/81.5 of", "downlink.md", "| 1/81.5 |"),
    ("index.md", "6.65 MB", "downlink.md", "| 6.65 MB | 6.65 MB | 1/1 |"),
    ("index.md", "about 3 kB", "performance.md", "| 0 | tensor | 2 | 0.118% | 2,978 | 2,906 |"),
    ("../README.md", "(67 from the second round on)", "flower.md", "| 0.390 | 86.6 % | 1,243 kB | 1,778 kB | 67 |"),
    ("../README.md", "0.221 and 0.222 | 11.6,", "nvflare.md", "| NVFlare, adaquant | 24,537 |"),
    (
        "../README.md",
        "0.221 and 0.222 | 11.6,",
        "nvflare.md",
        '| ours, `error=8, quantizer="centroid"` | 2,112 |',
    ),
    ("../README.md", "1.874 and 1.888 | 231,", "how-to/pytorch.md", "| 1.8742 | -0.73 % | 0.139 | 231x |"),
    ("../README.md", "1.874 and 1.888 | 231,", "how-to/pytorch.md", "| float32 (DiLoCo) | 1.8881 |"),
    (
        "../README.md",
        "SparseLoCo | the same | 2.91",
        "rivals.md",
        "| SparseLoCo | outer step 2 | 232 ± 43.6 | 2.91 |",
    ),
    (
        "../README.md",
        "DAdaQuant | the same | 4.72",
        "rivals.md",
        "| DAdaQuant | rule_s0 = 8 | 377 ± 13.3 | 4.72 |",
    ),
    ("../README.md", "s0 = 1 | the same | 7.66", "rivals.md", "| AdaQuantFL | s0 = 1 | 1,428 | 7.66 |"),
    ("../README.md", "SparseLoCo | the same | 62.4", "rivals.md", "| SparseLoCo | outer step 2 | 11,623 | 62.4 |"),
    ("../README.md", "default | the same | 117", "rivals.md", "| auto, late | nothing set | 21,728 | 117 |"),
    ("../README.md", "and 0.5 % | 0.75", "rivals.md", "| SparseLoCo | outer step 2 | 865 ± 41.1 | 0.75 |"),
    (
        "../README.md",
        "way | the same | 0.86",
        "rivals.md",
        "| auto, late, outer step | outer step 2 | 994 ± 50.5 | 0.86 |",
    ),
    ("../README.md", "default | the same | 1.42", "rivals.md", "| auto, late | nothing set | 1,633 ± 11.1 | 1.42 |"),
    ("../README.md", "1 bit | the same | 4.26", "rivals.md", "| EDEN | 1 bit | 4,900 ± 137 | 4.26 |"),
    ("when-not-to.md", "0.73 s", "when-not-to.md", "A client computes for 0.73 s per round, 3.4 ms of it"),
    ("when-not-to.md", "56 % of the time", "when-not-to.md", "(56%)"),
    ("when-not-to.md", "89 % at 1000", "when-not-to.md", "(89%)"),
    ("when-not-to.md", "3.20 GB instead of 6.39 GB", "downlink.md", "| 3.20 GB |"),
    ("when-not-to.md", "78.3 MB", "downlink.md", "| 78.3 MB |"),
    ("when-not-to.md", "14 to 19 kB", "how-to/hosts.md", "14 to 19 kB per client"),
    ("paper.md", "209 times", "performance.md", "| 209x |"),
    ("paper.md", "294 times", "performance.md", "| 294x |"),
    ("paper.md", "389 MB by its formula, [took 2.83 MB]", "performance.md", "took 2.83 MB, 138x less"),
    ("paper.md", "20 times the bytes", "how-to/choose.md", "take 20 times the bytes"),
]
# The README's rows of libraries, and the rows of docs/peers.md that they are taken from.
PEERS = {
    "NumPy, float16": "CNN update: numpy: float16",
    "bitsandbytes, NF4 in blocks of 64": "CNN update: bitsandbytes: NF4, blocks of 64",
    "torchao, int4 in groups of 128": "CNN update: torchao: int4, groups of 128",
    "hivemind, UNIFORM_8BIT": "CNN update: hivemind: UNIFORM_8BIT",
    "OpenFL, EDEN with 2 bits": "CNN update: openfl: EDEN, 2 bits",
    "FedLab, QSGD with 4 bits": "CNN update: fedlab: QSGD, 4 bits",
    "pysz, SZ3 with bound 0.1 of the deviation": "CNN update: pysz: SZ3, bound 0.1 of the deviation",
    "NVFlare, ADAQUANT with weight 1 (Gaussian)": "Gaussian: nvflare: ADAQUANT, weight 1",
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LANGUAGES = {"python", "console", "bash", "toml", "json", "text"}
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
            assert printed == block.code, f"{block.place}: this is what it prints now:\n{printed}"
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


def test_blocks_that_are_not_run_are_known_and_say_why() -> None:
    left_out = {}
    for page in PAGES:
        marks = [block.mark for block in pages.blocks(page) if block.mark.startswith("not run: ")]
        assert all(len(mark.split()) >= 4 for mark in marks), f"{pages.name(page)}: a reason is a sentence"
        left_out |= {pages.name(page): len(marks)} if marks else {}
    assert left_out == NOT_RUN


def test_every_block_has_a_language_that_is_checked() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            assert block.language in LANGUAGES or block.page == "docs/wire-format.md", block.place  # it shows bytes
            assert block.language != "text" or block.mark.startswith("output"), f"{block.place}: the output of what?"


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


def test_every_command_in_a_sentence_is_one() -> None:
    known = {command.prog: command.format_help() for command, _ in site_pages.commands(build_parser())}
    for page in PAGES:
        for place, words in pages.mentions(page):
            if words[0] == "make":
                assert {word for word in words[1:] if "=" not in word} <= TARGETS, place
            elif words[1] != "COMMAND":
                helps = [text for prog, text in known.items() if f"{' '.join(words)} ".startswith(f"{prog} ")]
                options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
                assert len(helps) == 1, place
                assert all(re.search(rf"{option}\b", helps[0]) for option in options), place


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


def test_the_tutorial_shows_what_make_demo_prints() -> None:
    blocks = pages.blocks(ROOT / "docs" / "tutorial.md")
    (shown,) = [block.code for block in blocks if block.mark.startswith("output of the demo")]
    runs = find_runs([ROOT / "evidence" / "records" / "demo"])
    printed = [tables.to_text(tables.bits_table(runs, measure=measure)) for measure in ("wire_bytes_up", "paper_bits")]
    assert [line.rstrip() for text in printed for line in text.splitlines() if line.strip()] == shown.splitlines()


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


@pytest.mark.parametrize(("page", "quote", "source", "figure"), QUOTED)
def test_a_figure_that_a_page_quotes_is_the_one_that_was_measured(
    page: str, quote: str, source: str, figure: str
) -> None:
    assert quote in (ROOT / "docs" / page).read_text()
    assert figure in (ROOT / "docs" / source).read_text(), f"docs/{source} has changed: bring docs/{page} up to date"


def test_the_readmes_libraries_have_the_figures_that_were_measured() -> None:
    rows, vector = {}, ""
    for line in (ROOT / "docs" / "peers.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 6 and cells[2] == "error":
            vector = cells[1]
        elif len(cells) > 6:
            rows[f"{vector}: {cells[1]}"] = f"{cells[2]} | {cells[3]} | {cells[5]} |"
    readme = (ROOT / "README.md").read_text()
    for shown, measured in PEERS.items():
        assert f"| {shown} | {rows[measured]}\n" in readme


def test_every_key_and_preset_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name in (*KEYS, *preset_names()):
        assert f"`{name}`" in text, name


def test_the_defaults_in_the_tables_are_those_of_the_code() -> None:
    defaults = {field.name: field.default for field in fields(Config)}
    settings, _, _ = (ROOT / "docs" / "configuration.md").read_text().partition("## What a run leaves behind")
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]+) \|", settings, re.MULTILINE)
    shown = {}
    for names, values in rows:
        if set(keys := re.findall(r"`([\w-]+)`", names)) <= defaults.keys():
            shown |= dict(zip(keys, (json.loads(value.strip("`")) for value in values.split(", ")), strict=True))
    assert shown == {key: defaults[key] for key in shown}
    assert defaults.keys() - shown.keys() == {"task_sha256", "method_sha256", "quantizer_sha256"}


def test_the_recorded_demo_is_the_one_that_make_demo_runs() -> None:
    records = sorted((ROOT / "evidence" / "records" / "demo").glob("*/seed-0/config.toml"))
    (names,) = re.findall(r"compare demo --methods (\S+) ", (ROOT / "Makefile").read_text())
    methods = {method.folder: method.settings for method in map(parse, names.split(","))}
    assert {path.parts[-3] for path in records} == methods.keys()
    for path in records:
        recorded = load_config(path)
        # Their defaults have changed since. Only cost-aware reads `repair`, and only auto, which is not there, `error`.
        expected = replace(load_config("demo", methods[path.parts[-3]]), error=recorded.error)
        if expected.method != "cost-aware":
            expected = replace(expected, repair=recorded.repair)
        assert recorded == expected


def test_links_to_files_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
