"""Flower is optional, and the right version is asked for in a sentence."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from adaquantfl.flower import requirement


def test_importing_the_package_does_not_import_flower() -> None:
    code = "import sys, adaquantfl as aq; aq.compress; assert 'flwr' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_two_names_are_found_from_the_package() -> None:
    code = "import adaquantfl; adaquantfl.flower.quantize_mod, adaquantfl.flower.AdaQuantStrategy"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_flower_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(requirement, "version", missing)
    with pytest.raises(ImportError, match=r"pip install '\.\[flower\]'"):
        requirement.require_flwr()


@pytest.mark.parametrize("found", ["1.40.2", "1.4.1", "1.43.0", "2.41.0"])
def test_another_version_is_refused_with_both_numbers(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    with pytest.raises(ImportError, match=rf"works with flwr 1\.41 and 1\.42, but flwr {found} is installed"):
        requirement.require_flwr()


@pytest.mark.parametrize("found", ["1.41.0", "1.41.3", "1.41", "1.42.0"])
def test_the_supported_version_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    requirement.require_flwr()
