"""The figures of quantizers in evidence/details/rivals.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from adaquantfl.quantizers.base import norms_of
from adaquantfl.quantizers.registry import find
from adaquantfl.report.tables import markdown, significant
from evidence.pages.marked import read, verdict

EDEN = {1: 0.570, 2: 0.133, 4: 0.0357, 8: 0.0096}  # s: what its authors print for 1 to 4 bits
QUIC_FL = (1.47, 0.217, 0.0433, 0.0097)  # what its authors print for 1 to 4 bits
OURS = "centroid"
WITHIN = 1.05  # of EDEN's error, at 1 bit and below

Row = dict[str, Any]


def rows(record: str = "mean_estimation", above: float = 0.015) -> list[Row]:
    return [row for row in read(f"benchmarks/{record}")["rows"] if has_its_bits(row, above)]


def has_its_bits(row: Row, above: float = 0.015) -> bool:
    """Whether the frames had the bits that were asked for, or a little fewer or more; others are not shown."""
    return row["wanted"] is None or 0.965 * row["wanted"] < row["bits"] < (1 + above) * row["wanted"]


def kinds() -> list[str]:
    return list(dict.fromkeys(row["kind"] for row in rows()))


def label(row: Row) -> str:
    both = len(norms_of(find(row["quantizer"]))) > 1
    biased = "" if find(row["quantizer"]).traits.unbiased else " (biased)"
    return f"`{row['quantizer']}`{', ' + row['norm'] if both else ''}{biased}"


def errors(kind: str, found: list[Row]) -> str:
    """One row a quantizer, one column a number of bits; the least of the unbiased in bold."""
    mine = [row for row in found if row["kind"] == kind and row["wanted"] and "beside" not in row]
    columns = sorted({row["wanted"] for row in mine})
    cells = {(label(row), row["wanted"]): row for row in mine}
    fair = [row for row in mine if find(row["quantizer"]).traits.unbiased]
    best = {bits: min(row["error"] for row in fair if row["wanted"] == bits) for bits in columns}
    grid = [[kind, *(f"{bits:g} bit{'s' if bits > 1 else ''}" for bits in columns)]]
    for name in dict.fromkeys(label(row) for row in mine):
        line = [name]
        for bits in columns:
            row = cells.get((name, bits))
            text = significant(row["error"]) if row else ""
            line.append(f"**{text}**" if row and row in fair and row["error"] == best[bits] else text)
        grid.append(line)
    return markdown(grid)


def beside_eden() -> str:
    """EDEN at its whole bits, what its authors print, and ours at exactly its bytes."""
    grid = [["", "EDEN's s", "bits in the frame", "EDEN", f"`{OURS}`", "ours / EDEN"]]
    for kind in kinds():
        for s in EDEN:
            eden, ours = pair(kind, s)
            errors = [significant(row["error"]) for row in (eden, ours)]
            grid.append([kind, str(s), f"{eden['bits']:.3f}", *errors, f"{ratio(kind, s):.2f}"])
    return markdown(grid)


def pair(kind: str, s: int) -> tuple[Row, Row]:
    mine = [row for row in rows() if row["kind"] == kind]
    (eden,) = [row for row in mine if (row["quantizer"], row["s"]) == ("eden", s)]
    (ours,) = [row for row in mine if (row["quantizer"], row.get("beside")) == (OURS, f"eden {s}")]
    return eden, ours


def ratio(kind: str, s: int) -> float:
    """Our error over EDEN's, at EDEN's bytes."""
    eden, ours = pair(kind, s)
    return float(ours["error"] / eden["error"])


def half_a_bit(kind: str) -> float:
    """Our error at half a bit over that of EDEN's way there: 1 bit for every other coordinate."""
    mine = [row for row in rows() if row["kind"] == kind and row["wanted"] == 0.5 and row["quantizer"] == OURS]
    return float(min(row["error"] for row in mine)) / below_one(0.5)


def below_one(bits: float) -> float:
    """EDEN below one bit: a share of the coordinates at one bit each, scaled up; from its published figure."""
    return (1 + EDEN[1]) / bits - 1


def published() -> str:
    grid = [["published, any vector", "1 bit", "2 bits", "3 bits", "4 bits"]]
    grid.append(["EDEN", *(f"{error:g}" for error in EDEN.values())])
    grid.append(["QUIC-FL", *(f"{error:g}" for error in QUIC_FL)])
    return markdown(grid)


def targets() -> str:
    more = {(kind, s): ratio(kind, s) for kind in kinds() for s in (2, 4, 8)}
    one = {kind: ratio(kind, 1) for kind in kinds()}
    half = {kind: half_a_bit(kind) for kind in kinds()}
    (worst_kind, worst_s), worst = max(more.items(), key=lambda item: item[1])
    grid = [["target", "worst", "where", ""]]
    two = ["from 2 bits up, less error than EDEN at equal bytes", f"{worst:.2f} of it", f"{worst_kind}, s = {worst_s}"]
    grid.append([*two, verdict(worst < 1)])
    for name, found in (("at 1 bit", one), ("at 0.5 bits", half)):
        kind, share = max(found.items(), key=lambda item: item[1])
        grid.append([f"{name}, within 5 % of EDEN", f"{share:.2f} of it", kind, verdict(share <= WITHIN)])
    return markdown(grid)


def mean() -> str:
    record = read("benchmarks/mean_estimation")
    tables = "\n\n".join(errors(kind, rows()) for kind in kinds())
    return (
        f"Synthetic vectors have {record['d']:,} elements and one scale (or one for each block). The CNN's updates are "
        f"those of one client after {' and '.join(str(done) for done in record['rounds'])} rounds on the bundled "
        f"sample, with a scale for each tensor. Errors are means of {record['draws']} draws; the least of the unbiased "
        f"ones is in bold.\n\n{tables}\n\nEDEN has whole bits only, and the entropy coder shortens them: it is "
        "measured where it comes out, and ours at the same bytes.\n\n"
        f"{beside_eden()}\n\n{published()}\n\nTargets for `{OURS}`. Below one bit "
        "EDEN sends a random share of the coordinates; that was not run here, its error is the formula's, "
        f"{below_one(0.5):.2f} at half a bit.\n\n{targets()}"
    )


def few() -> str:
    found = rows("few_bytes", above=0.035)  # a frame of few elements varies more in size from draw to draw
    tables = [errors(kind, found) for kind in dict.fromkeys(row["kind"] for row in found)]
    columns = sorted({row["wanted"] for row in found})
    spans = []
    for bits in (columns[:2], columns[2:]):
        pairs = beside([row for row in found if row["wanted"] in bits], "uniform", "centroid")
        ratios = [paper["error"] / ours["error"] for paper, ours in pairs]
        spans.append(f"{min(ratios):.1f} to {max(ratios):.1f} times at {' and '.join(f'{b:g}' for b in bits)} bit")
    return "\n\n".join([*tables, f"At equal bytes the paper's rounding errs more than `centroid`: {'; '.join(spans)}."])


def beside(found: list[Row], one: str, other: str) -> list[tuple[Row, Row]]:
    """Rows of two quantizers, with their first norm, on the same vector at the same bits."""
    place = {
        (row["quantizer"], row["kind"], row["wanted"]): row
        for row in found
        if row["norm"] == (*norms_of(find(row["quantizer"])), None)[0]
    }
    keys = [(kind, bits) for name, kind, bits in place if name == one and (other, kind, bits) in place]
    return [(place[one, *key], place[other, *key]) for key in keys]


MARKERS = {"uniform": "o", "lattice": "^", "eden": "D", "centroid": "v"}


def bound() -> str:
    """Return the gap of each quantizer to the bound; the smallest in bold."""
    found = read("benchmarks/rate_bound")["rows"]
    cells = {(one["quantizer"], one["wanted"]): one for one in found if one["wanted"]}
    columns = sorted({bits for _, bits in cells})
    least = {bits: min(one["gap"] for (_, at), one in cells.items() if at == bits) for bits in columns}
    grid = [["gap to the bound in bits", *(f"{bits:g}" for bits in columns)]]
    for name in MARKERS:
        if any(quantizer == name for quantizer, _ in cells):
            gaps = {bits: cells[name, bits]["gap"] if (name, bits) in cells else None for bits in columns}
            texts = {bits: significant(gap) if gap is not None else "" for bits, gap in gaps.items()}
            grid.append([f"`{name}`", *(f"**{text}**" if gaps[b] == least[b] else text for b, text in texts.items())])
    return markdown(grid)


def draw_bound(path: Path) -> None:
    """Draw the error next to the bound, and the gap in bits, against the bits of a frame."""
    figure, (error, gap) = plt.subplots(1, 2, figsize=(10, 4.2))
    bits = np.geomspace(0.004, 4.5, 200)
    error.plot(bits, 1 / (4.0**bits - 1), color="black", label="bound 1 / (2^(2R) - 1)")
    for number, (name, mark) in enumerate(MARKERS.items()):
        mine = [one for one in read("benchmarks/rate_bound")["rows"] if one["quantizer"] == name]
        mine.sort(key=lambda one: one["bits"])
        spent = [one["bits"] for one in mine]
        style = {"color": f"C{number}", "marker": mark, "markersize": 5, "label": name}
        error.plot(spent, [one["error"] for one in mine], **style)
        gap.plot(spent, [one["gap"] / one["bits"] for one in mine], **style)
    error.set(xscale="log", yscale="log", ylim=(1e-3, 1e4), ylabel="error / energy of the vector")
    gap.set(xscale="log", ylim=(0, 1), ylabel="bits beyond the bound, share of all bits")
    for axis in (error, gap):
        axis.set_xlabel("bits per element, whole frames")
        axis.grid(alpha=0.3)
    error.legend(fontsize=8)
    figure.tight_layout()
    with plt.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
