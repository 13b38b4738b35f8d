"""The recipes of CONTRIBUTING.md: a quantizer and a codec of another package, and the package that brings them."""

from __future__ import annotations

import sys
import tomllib
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


def install(folder: Path, package: str = "my-package") -> Path:
    """The package as an installer leaves it in a folder of sys.path: modules, and metadata with entry points."""
    home, facts = folder / "my_package", folder / f"{package.replace('-', '_')}-1.0.dist-info"
    home.mkdir(parents=True, exist_ok=True)
    (home / "__init__.py").touch()
    (home / "sign.py").write_text(recipe("quantizer"))
    (home / "deflate.py").write_text(recipe("codec"))
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    groups = tomllib.loads(recipe("entry points"))["project"]["entry-points"]
    lines = {group: [f"{name} = {value}" for name, value in points.items()] for group, points in groups.items()}
    text = "\n".join("\n".join([f"[{group}]", *points]) for group, points in lines.items())
    (facts / "entry_points.txt").write_text(text)
    return folder


def forget() -> None:
    """The package's modules: the next test has its own."""
    for name in [name for name in sys.modules if name.split(".")[0] == "my_package"]:
        del sys.modules[name]
