"""Imports go one way, as the layout says: nothing below imports what is above it."""

from __future__ import annotations

import ast
from pathlib import Path

import adaquantfl

ROOT = Path(adaquantfl.__file__).parent
# Each may import those in the layers before it, those of its own layer that are listed, and itself.
LAYERS: list[set[str]] = [
    {"theory"},
    {"quantizers", "codecs"},
    {"rules", "protocol"},
    {"private"},
    {"training", "engines", "flower", "nvflare", "torch"},
    {"runs"},
    {"report"},
    {"bench"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
WITHIN = {("protocol", "rules"), ("engines", "training"), ("engines", "flower")}
BOTH_WAYS = {"quantizers", "codecs"}  # a quantizer's levels are what a codec encodes, and frames name quantizers


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, also inside functions and for type checkers."""
    inside = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = inside[: len(inside) - node.level + 1]
            names = [*base, *(node.module or "").split(".")] if node.module else list(base)
            found |= {names[0]} if names else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found |= {module.split(".")[1] for module in modules if module.startswith("adaquantfl.")}
    return found


def test_nothing_imports_what_is_above_it() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for other in imported(path) & RANK.keys() if own in RANK else ():
            same = own == other or {own, other} <= BOTH_WAYS or (own, other) in WITHIN
            if not same and RANK[other] >= RANK[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong
