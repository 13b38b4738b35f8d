"""Writes "Error against the bound" of docs/rivals.md and its figure from benchmarks/rate_bound.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from adaquantfl.report.tables import markdown, significant
from evidence.pages.marked import ROOT, write

RECORD = ROOT / "evidence" / "records" / "benchmarks" / "rate_bound.json"
PAGE = ROOT / "docs" / "rivals.md"
FIGURE = ROOT / "docs" / "figures" / "rate-bound.svg"
MARKS = {"uniform": "o", "dithered": "s", "lattice": "^", "eden": "D", "centroid": "v", "mixed": "*"}


def rows(record: Path = RECORD) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(record.read_text(encoding="utf-8"))["rows"]
    return found


def draw(path: Path) -> None:
    """Error over the bound, and the gap in bits, against the bits of a frame."""
    figure, (error, gap) = plt.subplots(1, 2, figsize=(10, 4.2))
    bits = np.geomspace(0.004, 4.5, 200)
    error.plot(bits, 1 / (4.0**bits - 1), color="black", label="bound 1 / (2^(2R) - 1)")
    for number, (name, mark) in enumerate(MARKS.items()):
        mine = sorted((one for one in rows() if one["quantizer"] == name), key=lambda one: one["bits"])
        spent = [one["bits"] for one in mine]
        line = "--" if name == "mixed" else "-"  # it lies on that of centroid
        style = {"color": f"C{number}", "marker": mark, "markersize": 5, "linestyle": line, "label": name}
        error.plot(spent, [one["error"] for one in mine], **style)
        gap.plot(spent, [one["gap"] / one["bits"] for one in mine], **style)
    error.set(xscale="log", yscale="log", ylim=(1e-3, 1e4), ylabel="error / energy of the vector")
    gap.set(xscale="log", ylim=(0, 1), ylabel="bits beyond the bound, share of all bits")
    for axis in (error, gap):
        axis.set_xlabel("bits per element, whole frames")
        axis.grid(alpha=0.3)
    error.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def table() -> str:
    """The error and the gap of each quantizer; the smallest gap in bold."""
    columns = sorted({one["wanted"] for one in rows() if one["wanted"]})
    cells = {(one["quantizer"], one["wanted"]): one for one in rows() if one["wanted"]}
    least = {bits: min(one["gap"] for (_, at), one in cells.items() if at == bits) for bits in columns}
    grid = [["gap to the bound in bits", *(f"{bits:g}" for bits in columns)]]
    for name in MARKS:
        if any(quantizer == name for quantizer, _ in cells):
            line = [f"`{name}`"]
            for bits in columns:
                one = cells.get((name, bits))
                text = significant(one["gap"]) if one else ""
                line.append(f"**{text}**" if one and one["gap"] == least[bits] else text)
            grid.append(line)
    return markdown(grid)


def blocks() -> dict[str, str]:
    """The marked text of the page."""
    return {"rate-bound": table()}


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "rate-bound"
    draw(FIGURE)
    write(PAGE, blocks())
