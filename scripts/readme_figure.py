"""Draw the README's picture, docs/figures/bytes.png, from results/rivals: the same training in fewer and fewer bytes.

python scripts/readme_figure.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adaquantfl.experiments import tables
from adaquantfl.experiments.figures import RC, SPARE, STYLES, Style
from adaquantfl.experiments.records import RunRecord, find_runs
from adaquantfl.experiments.rivals import OURS

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "rivals" / "iid"
OUT = ROOT / "docs" / "figures" / "bytes.png"


@dataclass(frozen=True)
class Line:
    """One curve: a run, and what it would have sent or did send."""

    folder: str
    label: str
    style: Style
    formula: bool = False  # the paper's bits in place of the bytes that were sent


LINES = (
    Line("fp32", "float32", STYLES["float32"]),
    Line("adaquant", "AdaQuantFL, counted as in the paper", STYLES["2-bit"], formula=True),
    Line("adaquant", "AdaQuantFL, this wire", STYLES["AdaQuantFL"]),
    Line(OURS, "our rule and quantizer, this wire", SPARE[1]),
)


def sent(run: RunRecord, formula: bool) -> list[tuple[float, float]]:
    """(bytes of all clients, loss) wherever the loss was measured."""
    clients = run.config["clients"]
    return [
        (line["paper_bits"] * clients / 8 if formula else line["wire_bytes_up"], line["loss"])
        for line in run.history
        if line.get("loss") is not None
    ]


def main() -> None:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(8.6, 4.2), layout="constrained")
        axes = picture.add_subplot()
        curves = {line: sent(find_runs([RECORDS / line.folder / "seed-0"])[0], line.formula) for line in LINES}
        level = tables.round_up(max(min(loss for _, loss in points) for points in curves.values()))
        for line, points in curves.items():
            style = line.style
            total = next(size for size, loss in points if loss <= level)
            axes.plot(
                *zip(*points, strict=True), color=style.colour, linestyle=style.dash, marker=style.marker,
                markevery=5, lw=2.2, label=f"{line.label}: {tables.amount(total, 'B')}",
            )  # fmt: skip
            axes.plot([total], [level], "o", color=style.colour, ms=9, mec="white", zorder=5)
        axes.axhline(level, color="#9aa1ab", lw=0.8, zorder=0)
        axes.set(xscale="log", yscale="log", ylabel="Training loss", xlabel="Bytes sent by 8 clients, all in all")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:.1g}" if value in (0.4, 0.6) else ""))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tables.amount(value, "B")))
        axes.legend(title=f"Bytes to loss {level:g}", loc="upper right", alignment="left")
        picture.savefig(OUT, dpi=170)


if __name__ == "__main__":
    main()
