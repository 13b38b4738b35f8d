"""What the page's plots are and the numbers behind them: one entry per method, with the columns of each of its runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..runs.columns import COLUMNS, Column, flat
from ..runs.records import RunRecord, group_runs
from .figures import Style, styles

# Columns that only the page has, made of the history's.
_DERIVED = (
    Column("seconds", "Time of the run so far.", unit="s", label="Time of the run", x=4),
    Column("wire_bits", "Bits on the wire of one client so far.", unit="b", label="Bits on the wire, one client"),
    Column("up_a_round", "Bytes that all clients sent in a round.", unit="B", label="Bytes up per round"),
    Column("down_a_round", "Bytes that all clients received in a round.", unit="B", label="Bytes down per round"),
)
# The page's plots: their vertical columns to choose from, and what is special about them.
_Plots = dict[str, tuple[tuple[str, ...], dict[str, Any]]]
_PLOTS: _Plots = {
    "loss": (("loss", "round_loss"), {"x": "wire_bytes_up"}),
    "accuracy": (("test_accuracy",), {"x": "wire_bytes_up", "optional": True}),
    "test-loss": (("test_loss",), {"x": "wire_bytes_up", "optional": True}),
    "levels": (("s",), {}),
    "bits": (("bits_per_element",), {}),
    "traffic": (("up_a_round", "down_a_round"), {"title": "Bytes per round, all clients"}),
    "wire": (
        ("wire_bits",),
        {"title": "Wire against formula", "x": "paper_bits", "logX": True, "diagonal": True, "optional": True},
    ),
}  # fmt: skip
_DASH_UNIT = 1.7  # matplotlib's dashes are in line widths, SVG's in pixels


def plots() -> list[dict[str, Any]]:
    """The page's plots, in order: those above, then one for each other column that has a label."""
    columns = _drawn()
    listed = {name for names, _ in _PLOTS.values() for name in names}
    alone: _Plots = {name: ((name,), {}) for name, column in columns.items() if not column.x and name not in listed}
    axes = [_axis(column) for column in sorted(columns.values(), key=lambda column: column.x) if column.x]
    by_formula = [
        axis | {"label": "Bits by the paper's formula, one client"} for axis in axes if axis["key"] == "paper_bits"
    ]
    return [
        {
            "name": name,
            "title": columns[ys[0]].label,
            "x": "round",
            "optional": name in alone,  # shown only where a run has it
            "logY": columns[ys[0]].scale != "linear",
            "steps": columns[ys[0]].scale == "log2",
            "axes": by_formula if special.get("diagonal") else axes,
            "ys": [_axis(columns[y]) for y in ys],
            **special,
        }
        for name, (ys, special) in {**_PLOTS, **alone}.items()
    ]


def _drawn() -> dict[str, Column]:
    return {column.name: column for column in (*COLUMNS.values(), *_DERIVED) if column.label}


def _axis(column: Column) -> dict[str, Any]:
    base = 2 if column.scale == "log2" else 10
    return {"key": column.name, "label": column.label, "unit": column.unit, "factor": column.factor, "base": base}


def plot_data(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """What the page's script draws: methods in order, each with its look and its runs."""
    groups = group_runs(runs)
    looks = styles(list(groups))
    all_ours = len(groups) > 1 and all(run.method == "adaquant" for run in runs)
    return [
        {
            "label": label,
            "ours": group[0].method == "adaquant" and not all_ours,  # drawn bolder than the others
            **_look(looks[label]),
            "runs": [
                {"seed": run.seed, "finished": run.finished, "columns": columns(run)} for run in group if run.history
            ],
        }
        for label, group in groups.items()
    ]


def columns(run: RunRecord) -> dict[str, list[float | None]]:
    """What is drawn of a run's history, by column: from round 0 where that is known."""
    rows = _with_totals(run.history)
    before: dict[str, Any] = {"round": 0}
    for row in rows:
        for way in ("up", "down"):
            sent = row.get(f"wire_bytes_{way}", 0) - before.get(f"wire_bytes_{way}", 0)
            row[f"{way}_a_round"] = sent / (row["round"] - before["round"])
        before = row
    drawn = _drawn()
    summary = run.summary or {}
    if rows and summary.get("initial_loss") is not None:
        zero = {name: 0 for name, column in drawn.items() if column.x and rows[-1].get(name) is not None}
        start = {name: summary.get(column.initial) for name, column in drawn.items() if column.initial}
        rows.insert(0, {**zero, **start})
    names = [name for name in drawn if any(row.get(name) is not None for row in rows)]
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def embedded(value: Any) -> str:
    """JSON that may stand inside a <script> of a page: nothing in it can end the element.

    >>> embedded({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def lighter(colour: str) -> str:
    """A colour mixed with white, for a line that stands out from a dark page."""
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(channel + 0.38 * (255 - channel)):02x}" for channel in channels)


def _look(style: Style) -> dict[str, str]:
    dashes = [] if isinstance(style.dash, str) else style.dash[1]
    return {
        "colour": style.colour,
        "dark": lighter(style.colour),
        "dash": " ".join(f"{_DASH_UNIT * length:.3g}" for length in dashes),
        "marker": style.marker,
    }


def _with_totals(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history with the seconds so far and the bits on the wire of a client that took part, both added up."""
    rows, seconds, bits, sent = [], 0.0, 0.0, 0
    for row in map(flat, history):
        seconds += row.get("seconds.round", 0.0) + row.get("seconds.evaluate", 0.0)
        bits += 8 * (row["wire_bytes_up"] - sent) / max(1, row.get("clients", 1))
        sent = row["wire_bytes_up"]
        rows.append({**row, "seconds": seconds or None, "wire_bits": bits if "paper_bits" in row else None})
    return rows


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.7g}")
