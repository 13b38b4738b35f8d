"""NVFlare is optional, and the right version is asked for in a sentence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "src" / "adaquantfl" / "nvflare" / "requirement.py"


@pytest.fixture
def requirement() -> ModuleType:
    """The module by its file: the package itself cannot be imported without NVFlare."""
    spec = importlib.util.spec_from_file_location("requirement", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_importing_the_package_does_not_import_nvflare() -> None:
    code = "import sys, adaquantfl as aq; aq.compress; assert 'nvflare' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_nvflare_is_named_with_the_command_that_installs_it(
    requirement: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(requirement, "version", missing)
    with pytest.raises(ImportError, match=r"pip install 'adaquantfl\[nvflare\]'"):
        requirement.require_nvflare()


@pytest.mark.parametrize("found", ["2.8.1", "2.10.0", "3.9.0"])
def test_another_version_is_refused_with_both_numbers(
    found: str, requirement: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    with pytest.raises(ImportError, match=rf"works with nvflare 2\.9, but nvflare {found} is installed"):
        requirement.require_nvflare()


@pytest.mark.parametrize("found", ["2.9.0", "2.9.3"])
def test_the_supported_version_is_taken(found: str, requirement: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    requirement.require_nvflare()
