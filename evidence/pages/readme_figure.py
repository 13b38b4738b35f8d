"""Draw the README's picture, docs/figures/bytes.png, and write its table from rivals and ablation.

python evidence/pages/readme_figure.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adaquantfl.report import tables
from adaquantfl.report.figures import RC, SPARE, STYLES, Style
from adaquantfl.runs.records import find_runs
from evidence.pages.marked import ROOT, write

RECORDS = ROOT / "evidence" / "records" / "rivals" / "iid"
OURS = "cost-aware-centroid"
NEW_RULE = ROOT / "evidence" / "records" / "ablation" / "cnn-8-clients"  # the same task
README = ROOT / "README.md"
OUT = ROOT / "docs" / "figures" / "bytes.png"


@dataclass(frozen=True)
class Line:
    """One curve: a run, and what it would have sent or did send."""

    folder: str
    label: str
    short: str  # in the picture, on two lines
    style: Style
    formula: bool = False  # the paper's bits in place of the bytes that were sent
    records: Path = RECORDS


LINES = (
    Line("fp32", "float32", "float32\n", STYLES["float32"]),
    Line(
        "adaquant",
        "AdaQuantFL (nearest), counted as in the paper",
        "AdaQuantFL,\npaper's count",
        STYLES["2-bit"],
        formula=True,
    ),
    Line("adaquant", "AdaQuantFL (nearest), this wire", "AdaQuantFL,\nthis wire", STYLES["AdaQuantFL"]),
    Line(OURS, "our rule and quantizer, this wire", "ours,\nthis wire", SPARE[1], records=NEW_RULE),
)


@dataclass(frozen=True)
class Curve:
    """What had been sent, in bytes of all clients, whenever the loss was measured."""

    line: Line
    rounds: list[int]
    sent: list[float]
    loss: list[float]

    @staticmethod
    def of(line: Line) -> Curve:
        run = find_runs([line.records / line.folder / "seed-0"])[0]
        measured = [entry for entry in run.history if entry.get("loss") is not None]
        by_formula = run.config["clients"] / 8
        return Curve(
            line,
            [entry["round"] for entry in measured],
            [entry["paper_bits"] * by_formula if line.formula else entry["wire_bytes_up"] for entry in measured],
            [entry["loss"] for entry in measured],
        )

    def reached(self, level: float) -> int:
        """Where the loss was first at or below the level."""
        return next(place for place, loss in enumerate(self.loss) if loss <= level)


def curves() -> tuple[list[Curve], float]:
    """All of them, and the lowest loss, to two digits, that all reached."""
    found = [Curve.of(line) for line in LINES]
    return found, tables.round_up(max(min(curve.loss) for curve in found))


def table() -> str:
    found, level = curves()
    ours = found[-1].sent[found[-1].reached(level)]
    grid = [[f"to training loss {level:g}", "rounds", "bytes", "times our bytes"]]
    for curve in found:
        place = curve.reached(level)
        size = curve.sent[place]
        grid.append([curve.line.label, str(curve.rounds[place]), tables.amount(size, "B"), f"{size / ours:,.1f}"])
    return tables.markdown(grid)


def draw() -> None:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    found, level = curves()
    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(8.6, 4.2), layout="constrained")
        axes = picture.add_subplot()
        for curve in found:
            style, place = curve.line.style, curve.reached(level)
            look = {"color": style.colour, "linestyle": style.dash, "marker": style.marker}
            axes.plot(curve.sent, curve.loss, markevery=5, lw=2.2, **look)
            axes.plot(curve.sent[place], level, "o", color=style.colour, ms=9, mec="white", zorder=5)
            text = f"{curve.line.short}\n{tables.amount(curve.sent[place], 'B')}"
            axes.annotate(
                text, (curve.sent[place], level), (0, -12), textcoords="offset points", ha="center", va="top",
                color=style.colour, fontweight="bold",
            )  # fmt: skip
        axes.axhline(level, color="#9aa1ab", lw=0.8, zorder=0)
        axes.set(xscale="log", yscale="log", ylabel="Training loss", xlabel="Bytes sent by 8 clients, together")
        axes.set_yticks([0.4, 0.6, 1, 1.5])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tables.amount(value, "B")))
        axes.set(ylim=(0.62 * level, 1.8), xlim=(None, 3 * max(found[0].sent)))
        picture.savefig(OUT, dpi=170)


def main() -> None:
    draw()
    write(README, {"bytes-table": table()})


if __name__ == "__main__":
    main()
