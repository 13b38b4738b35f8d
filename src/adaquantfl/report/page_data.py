"""The numbers behind the page's plots: one entry a method, with the columns of each of its runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from ..runs.records import INITIAL, RunRecord, group_runs
from .figures import Style, styles

MOST_POINTS = 1500  # of a run: more than a screen has pixels, and a long run's page stays light

_COLUMNS = (
    "round", "paper_bits", "wire_bytes_up", "seconds", "simulated_seconds", "loss", "round_loss", "test_accuracy",
    "test_loss", "s",
    "bits_per_element", "wire_bits", "up_a_round", "down_a_round",
)  # fmt: skip
_TOTALS = ("round", "paper_bits", "wire_bytes_up", "seconds", "simulated_seconds")  # they begin at 0
_DASH_UNIT = 1.7  # matplotlib's dashes are in line widths, SVG's in pixels


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


def columns(run: RunRecord, most: int = MOST_POINTS) -> dict[str, list[float | None]]:
    """A run's history by column, from round 0 where its start is known, at most about `most` rounds.

    Beside what a line of the history has: `seconds` since the start, `wire_bits` that a client sent on average,
    and the bytes of a round, up and down.
    """
    rows = thinned(_with_totals(run.history), most)
    before: dict[str, Any] = {"round": 0, "wire_bytes_up": 0, "wire_bytes_down": 0}
    for row in rows:
        rounds = row["round"] - before["round"]
        for way in ("up", "down"):
            key = f"wire_bytes_{way}"
            row[f"{way}_a_round"] = (row.get(key, 0) - before.get(key, 0)) / rounds
        before = row
    start = run.summary or {}
    if rows and start.get("initial_loss") is not None:
        zero = {name: 0 for name in _TOTALS if rows[-1].get(name) is not None}
        rows.insert(0, {**zero, **{key: start.get(initial) for key, initial in INITIAL.items()}})
    names = [name for name in _COLUMNS if any(row.get(name) is not None for row in rows)]
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def thinned(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """One row of each stretch, the last evaluated one where there is one, and always the last of all.

    >>> [row["round"] for row in thinned([{"round": k, "loss": k if k % 4 == 1 else None} for k in range(1, 11)], 5)]
    [1, 4, 5, 8, 9, 10]
    """
    stretch = math.ceil(len(rows) / most)
    if stretch <= 1:
        return rows
    kept = []
    for first in range(0, len(rows), stretch):
        part = rows[first : first + stretch]
        kept.append(next((row for row in reversed(part) if row.get("loss") is not None), part[-1]))
    return kept if kept[-1] is rows[-1] else [*kept, rows[-1]]


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


def _with_totals(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The history with the seconds so far and the bits on the wire of a client that took part, both added up."""
    rows, seconds, bits, sent = [], 0.0, 0.0, 0
    for line in history:
        spent = line.get("seconds") or {}
        seconds += spent.get("round", 0.0) + spent.get("evaluate", 0.0)
        bits += 8 * (line["wire_bytes_up"] - sent) / max(1, line.get("clients", 1))
        sent = line["wire_bytes_up"]
        rows.append({**line, "seconds": seconds or None, "wire_bits": bits})
    return rows


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.7g}")
