"""The recipes of CONTRIBUTING.md: a quantizer and a codec of another package, and the package that brings them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.pages import ROOT, blocks


def recipe(name: str) -> str:
    """The text of a marked block."""
    (found,) = [block.code for block in blocks(ROOT / "CONTRIBUTING.md") if block.mark == f"recipe: {name}"]
    return found


def made(name: str) -> dict[str, Any]:
    """The names that a recipe's code defines."""
    names: dict[str, Any] = {"__name__": f"my_package.{name}"}
    exec(compile(recipe(name), f"CONTRIBUTING.md: {name}", "exec"), names)
    return names


def put(folder: Path, package: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """The metadata of an installed package with entry points, in a folder of sys.path."""
    facts = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = (line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items())))
    (facts / "entry_points.txt").write_text("\n".join(lines))


def install(folder: Path) -> Path:
    """The package as an installer leaves it in a folder of sys.path: modules, and metadata with entry points."""
    home = folder / "my_package"
    home.mkdir()
    (home / "__init__.py").touch()
    (home / "sign.py").write_text(recipe("quantizer"))
    (home / "deflate.py").write_text(recipe("codec"))
    put(folder, "my-package", tomllib.loads(recipe("entry points"))["project"]["entry-points"])
    return folder


def forget() -> None:
    """The package's modules: the next test has its own."""
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]
