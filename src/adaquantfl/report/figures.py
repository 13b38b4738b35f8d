"""The paper's figures 2 to 5 from run directories: loss, test accuracy and bits per element against bytes sent.

Several seeds of one method become their mean with a band of one standard deviation. Methods differ in colour,
dash and marker, so that a grey print and a colour-blind reader can tell them apart.
"""

import functools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import ConfigError, DataError
from ..names import unknown
from ..runs.columns import COLUMNS, Column
from ..runs.records import Floats, RunRecord, group_runs, measure_of_test
from .tables import si_unit

if TYPE_CHECKING:  # matplotlib takes a second to import and is not needed to train
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

XScale = Literal["linear", "log"]
Dash = str | tuple[float, tuple[float, ...]]

INK, GRID = "#22272e", "#d9dde3"


@dataclass(frozen=True)
class Style:
    colour: str
    dash: Dash
    marker: str


# Okabe and Ito's palette; yellow is left out (too pale for a line) and the pink is darkened for contrast.
STYLES = {
    "AdaQuantFL": Style("#d55e00", "-", "o"),
    "2-bit": Style("#0072b2", (0, (6, 2)), "s"),
    "4-bit": Style("#009e73", (0, (1.2, 1.4)), "^"),
    "8-bit": Style("#b0568c", (0, (6, 1.5, 1.2, 1.5)), "D"),
    "16-bit": Style("#338fcc", (0, (3, 1.2)), "v"),
    "float32": Style("#6b7280", (0, (10, 2, 1.2, 2, 1.2, 2)), "X"),
    "auto": Style("#b8860b", (0, (4, 1, 1, 1, 1, 1)), "P"),
    "1-bit": Style("#7a4fbf", (0, (2, 2)), "<"),
    "3-bit": Style("#8c4a2f", (0, (8, 3)), ">"),
}
SPARE = (
    Style("#2f6f6f", (0, (1, 2)), "h"),
    Style("#4a4a9c", (0, (5, 1, 1, 1)), "p"),
    Style("#7d8c1f", (0, (3, 3)), "d"),
    Style("#b03a3a", (0, (1, 1, 4, 1)), "*"),
    Style("#1f7f9c", (0, (9, 2, 3, 2)), "8"),
)
# For many variants: the colours of all of these with another one's dash.
_ALL = (*SPARE, *STYLES.values())
MIXED = [Style(one.colour, other.dash, one.marker) for other in _ALL for one in _ALL if one is not other]

_SIDES = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK)
RC: Any = {
    # DejaVu Sans ships with matplotlib: the same figure on every machine.
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 11, "axes.titlesize": 12,
    "axes.labelsize": 11, "legend.fontsize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.7, "legend.frameon": False,
    "legend.handlelength": 3.2, "pdf.fonttype": 42, **_SIDES,
}  # fmt: skip

# 2 to 16 bits per element span a factor of 6 and read well on the paper's linear axis. With float32 it is 11,
# and the cheap methods would share the first tenth of it.
_FAR_APART = 8
NAMES = ("loss", "accuracy", "bits", "paper")
FORMATS = ("png", "pdf", "svg")
_LEGEND_LETTERS = 80  # that fit into the width of a figure, with 9 for each line and its space
_UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


def draw(runs: Sequence[RunRecord], out_dir: Path, formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write every figure of NAMES that the runs have into `out_dir`, in these of FORMATS, and return the paths."""
    import matplotlib

    for suffix in formats:
        if suffix not in FORMATS:
            raise ConfigError(unknown("figure format", suffix, FORMATS))
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    measure = measure_of_test(runs)
    absent = {"accuracy"} if measure is None else set()
    absent |= set() if any("paper_bits" in run.history[-1] for run in runs if run.history) else {"paper"}
    for name in (name for name in NAMES if name not in absent):
        picture = figure(name, runs)
        stem = "test_loss" if name == "accuracy" and measure == "test_loss" else name
        for suffix in formats:
            paths.append(out_dir / f"{stem}.{suffix}")
            with matplotlib.rc_context(RC):
                picture.savefig(paths[-1], dpi=180, metadata=None if suffix == "png" else _UNDATED[suffix])
    return paths


def figure(name: str, runs: Sequence[RunRecord]) -> "Figure":
    """Return one figure of NAMES as a matplotlib Figure that belongs to no window."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if name not in NAMES:
        raise ValueError(f"{name!r} is not a figure; expected one of {', '.join(NAMES)}.")
    if not any(run.history for run in runs):
        raise DataError("There is no finished round to draw; wait for the first one or give another run directory.")
    by_formula = any(run.final("bits_per_element") is not None for run in runs)
    key = {"accuracy": measure_of_test(runs), "bits": "bits_per_element" if by_formula else "s"}.get(name, "loss")
    if key is None:
        raise DataError("These runs measured nothing on a test set; there is no such figure of them.")
    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(6.4, 4.3), layout=ConstrainedLayoutEngine())
        axes = picture.subplots()
        panel(axes, runs, key, "paper_bits" if name == "paper" else "wire_bytes_up")
        _, labels = axes.get_legend_handles_labels()
        widest = max(map(len, labels), default=0)
        picture.legend(loc="outside lower center", ncols=min(6, max(1, _LEGEND_LETTERS // (widest + 9))))
    return picture


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style for each label, no two alike: a method's own, and for others one that their name chooses."""
    chosen: dict[str, Style] = {label: STYLES[label] for label in labels if label in STYLES}
    for label in labels:
        if label not in chosen:
            place = zlib.crc32(label.encode()) % len(SPARE)
            free = (*SPARE[place:], *SPARE[:place], *MIXED)
            chosen[label] = next(style for style in free if style not in chosen.values())
    return chosen


def panel(axes: "Axes", runs: Sequence[RunRecord], key: str, x: str) -> None:
    """Draw `key` against `x` for each method, on one pair of axes."""
    having_x = {
        label: [run for run in group if run.history and x in run.history[-1]]
        for label, group in group_runs(runs).items()
    }
    groups = {label: group for label, group in having_x.items() if group}
    totals = [max(float(run.history[-1][x]) for run in group) for group in groups.values()]
    least, most = max(min(totals), 1.0), max(totals)
    scale: XScale = "log" if most > _FAR_APART * least else "linear"
    # Along a logarithmic axis the unit suits the middle, or most ticks would be 0.00-something.
    typical = (most * least) ** 0.5 if scale == "log" else most
    divisor, unit = si_unit(typical, COLUMNS[x].unit)
    axes.set_xscale(scale)
    axes.set_xlabel(f"{COLUMNS[x].label} ({unit})" if unit else COLUMNS[x].label)
    axes.set_ylabel(COLUMNS[key].axis)
    for order, (label, style) in enumerate(styles(list(groups)).items()):
        ours = groups[label][0].method == "adaquant"
        curves = [_curve(run, COLUMNS[key], x, divisor, scale == "log") for run in groups[label]]
        steps = COLUMNS[key].scale == "log2"
        _lines(axes, curves, label, style, bold=ours, steps=steps, order=order)
    _finish_axes(axes, COLUMNS[key], scale)


def _curve(run: RunRecord, column: Column, x: str, divisor: float, positive: bool) -> Floats:
    """(n, 3): round, x and y of one run, in the units of the axes."""
    xs, ys = run.series(column.name, x)
    rounds, _ = run.series(column.name, "round")
    if column.scale == "log2" and xs.size:
        # Round k is sent between B_(k-1) and B_k, so its level is drawn over that stretch.
        rounds, xs, ys = np.append(0.0, rounds), np.append(0.0, xs), np.append(ys[0], ys)
    table = np.stack([rounds, xs / divisor, ys * column.factor], axis=1)
    keep = np.isfinite(ys) & ((xs > 0) | (not positive))
    return table[keep]


def _lines(
    axes: "Axes", curves: list[Floats], label: str, style: Style, *, bold: bool, steps: bool, order: int
) -> None:
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return
    look: dict[str, Any] = {"color": style.colour, "zorder": 5 if bold else 3}
    if steps:
        look["drawstyle"] = "steps-pre"
    # Seeds measure at the same rounds until one of them stops early: average the part they share, and let
    # the longer ones continue as thin lines of their own.
    shared = functools.reduce(np.intersect1d, [curve[:, 0] for curve in curves])
    stack = np.stack([curve[np.isin(curve[:, 0], shared), 1:] for curve in curves])
    mean = stack.mean(axis=0)
    axes.plot(
        *mean.T,
        label=label.replace("$", r"\$"),  # a label holds settings, never a formula
        linestyle=style.dash,
        linewidth=2.7 if bold else 1.8,
        marker=style.marker,
        markersize=6.5 if bold else 5.5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        markevery=(0.02 + 0.025 * (order % 6), 0.16),  # staggered, so that markers do not hide each other
        solid_capstyle="round",
        **look,
    )
    if len(curves) > 1:
        middle, std = mean[:, 1], stack[:, :, 1].std(axis=0, ddof=1)  # as in the tables
        low, high = np.where(middle > std, middle - std, stack[:, :, 1].min(axis=0)), middle + std
        if std.any():
            band: dict[str, Any] = {"step": "pre"} if steps else {}
            axes.fill_between(mean[:, 0], low, high, color=style.colour, alpha=0.16, linewidth=0, **band)
        for curve in curves:
            rest = curve[curve[:, 0] >= max(shared, default=0.0), 1:]
            axes.plot(*rest.T, linewidth=0.8, alpha=0.7, **look)


def _finish_axes(axes: "Axes", column: Column, scale: XScale) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    if scale == "log":
        axes.xaxis.set_major_formatter(plain)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    if column.scale == "linear":
        return
    axes.set_yscale("log", base=2 if column.scale == "log2" else 10)
    axes.yaxis.set_major_formatter(plain)
    if column.scale == "log2":
        low, high = axes.dataLim.intervaly
        if column.name == "bits_per_element" and np.isfinite([low, high]).all():
            axes.yaxis.set_major_locator(FixedLocator([1, 2, 3, 4, 5, 6, 8, 16, 32]))
            axes.set_ylim(max(low, 1) / 1.25, max(high, 1) * 1.25)
        return
    low, high = axes.get_ylim()
    # Less than two decades have too few powers of ten to read a value by.
    subs = (1.0, 2.0, 3.0, 5.0, 7.0) if high / low < 10 else (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_minor_formatter(NullFormatter())
