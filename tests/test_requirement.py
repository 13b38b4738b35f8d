"""Flower and NVFlare are optional, and the right version is asked for in a sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from adaquantfl import requirement
from adaquantfl.requirement import FLOWER, NVFLARE, Framework

BOTH = pytest.mark.parametrize("framework", [FLOWER, NVFLARE], ids=lambda one: one.title)


def test_importing_the_package_imports_neither() -> None:
    code = "import sys, adaquantfl as aq; aq.compress; assert not {'flwr', 'nvflare'} & set(sys.modules)"
    code += "; aq.flower.quantize_mod, aq.flower.AdaQuantStrategy"  # found when they are asked for
    subprocess.run([sys.executable, "-c", code], check=True)


@BOTH
def test_a_missing_framework_is_named_with_the_command(framework: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(requirement, "version", missing)
    with pytest.raises(ImportError, match=rf"{framework.title}.*pip install '\.\[{framework.extra}\]'"):
        framework.require()


@pytest.mark.parametrize(
    ("framework", "found"),
    [(FLOWER, "1.40.2"), (FLOWER, "1.4.1"), (FLOWER, "1.43.0"), (FLOWER, "2.41.0"), (NVFLARE, "2.90")],
)
def test_another_version_is_refused_with_both_numbers(
    framework: Framework, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    supported = re.escape(" and ".join(framework.supported))
    with pytest.raises(ImportError, match=rf"{framework.package} {supported}, but {framework.package} {found} is inst"):
        framework.require()


@pytest.mark.parametrize(
    ("framework", "found"), [(FLOWER, "1.41.0"), (FLOWER, "1.41"), (FLOWER, "1.42.3"), (NVFLARE, "2.9.0")]
)
def test_a_supported_version_is_taken(framework: Framework, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "version", lambda _: found)
    framework.require()
