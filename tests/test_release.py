"""Ready to release: versions in step, CI that runs the Makefile's commands, badges and texts that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import badges
import yaml

import adaquantfl as aq

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()


def test_version_changelog_and_citation_are_in_step() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version, _, state = heads[0].partition(" ")
    assert version == PROJECT["version"] == citation["version"] == aq.__version__
    assert re.fullmatch(r"\(unreleased\)|\(\d{4}-\d\d-\d\d\)", state)
    assert ("date-released" in citation) == (state != "(unreleased)")
    assert not [head for head in heads[1:] if "unreleased" in head]
    versions = [tuple(map(int, head.split()[0].split("."))) for head in heads]
    assert versions == sorted(versions, reverse=True)


def test_ci_runs_the_commands_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    commands = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        make, target, python = command.split()
        assert (make, python) == ("make", "PYTHON=python"), command
        assert target in targets, command
    assert {command.split()[1] for command in commands} == {
        "lint", "fast-tests", "test-native", "test-core", "dist", "wheels",
    }  # fmt: skip
    (test,) = re.findall(r"^test: .*\n\t\$\(MAKE\) --jobs=2 (.+)$", MAKEFILE, re.MULTILINE)
    assert set(test.split()) <= {command.split()[1] for command in commands}


def test_ci_tries_every_python_that_the_package_names() -> None:
    known = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert known == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={known[0]}"
    for name in ("test", "core"):
        assert WORKFLOW["jobs"][name]["strategy"]["matrix"]["python"] == known


def test_ci_needs_no_secret_and_may_only_read() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    used = {step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step}
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used)


def test_the_core_tests_are_there_and_none_needs_an_extra() -> None:
    """test_packaging.py runs the core without them; here only what the files import at their top."""
    (listed,) = re.findall(r"^CORE_TESTS := (.+) \\$", MAKEFILE, re.MULTILINE)
    for name in listed.split():
        assert (ROOT / name).exists()
        files = [ROOT / name] if name.endswith(".py") else list((ROOT / name).rglob("test_*.py"))
        assert files
        for file in files:
            assert not re.search(
                r"^(import|from) (torch|flwr|matplotlib|rich|tomli_w)\b", file.read_text(), re.MULTILINE
            ), file


def test_the_badges_are_those_of_this_version_and_ask_nobody() -> None:
    for name, text in badges.badges().items():
        assert (badges.FOLDER / name).read_text() == text, "run scripts/badges.py"
        assert re.findall(r"(?:https?:)?//[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]  # the format's own name
    assert f">{PROJECT['version']}<" in (badges.FOLDER / "version.svg").read_text()
