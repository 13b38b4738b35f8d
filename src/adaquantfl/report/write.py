"""Everything that is made from runs, in one folder: figures, tables, the history as CSV, and the page."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..names import unknown
from ..runs import methods, records
from ..runs.columns import COLUMNS, flat
from . import figures, tables
from .headline import story
from .page import write_report


@dataclass(frozen=True)
class Look:
    """What is written and how figures look; the defaults suit a screen.

    Attributes:
        methods: Those that are shown, as `adaquantfl compare --methods` names them. Empty: all.
        formats: Of figures: "png", "pdf", "svg".
        size: Width and height of a figure in inches, such as (3.4, 2.4) for a column of a paper.
        font: The size of the figures' text in points.
        latex: Whether table.tex is written too.
    """

    methods: str = ""
    formats: Sequence[str] = ("png", "pdf")
    size: tuple[float, float] | None = None
    font: float = figures.FONT
    latex: bool = False

    def __post_init__(self) -> None:
        for name in self.formats or [""]:
            if name not in figures.FORMATS:
                raise ConfigError(unknown("figure format", name, figures.FORMATS))
        if not all(1 <= side <= 50 for side in self.size or ()):
            sides = "x".join(f"{side:g}" for side in self.size or ())
            raise ConfigError(f"A figure of {sides} inches: use 1 to 50 inches a side, such as 3.4x2.4.")
        if not 3 <= self.font <= 50:
            raise ConfigError(f"font = {self.font:g}: use 3 to 50 points.")


def parse_size(text: str) -> tuple[float, float]:
    """Return the width and height that a text such as "3.4x2.4" means.

    >>> parse_size("3.4x2.4")
    (3.4, 2.4)
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*x\s*([\d.]+)\s*", text)
    try:
        width, height = (float(side) for side in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        width = math.nan
    if math.isnan(width):
        raise ConfigError(f"--size {text}: expected WIDTHxHEIGHT in inches, such as 3.4x2.4.")
    return width, height


def report(runs: Sequence[str | Path | records.RunRecord], out: str | Path | None = None, **look: Any) -> Path:
    """Write figures, tables, the history as CSV and the page of runs, and return the page's path.

    Args:
        runs: Records, folders of runs, or folders of such folders, all of one task.
        out: Where to write. By default the first run's folder.
        look: The fields of `adaquantfl.report.write.Look`, such as formats=["svg"], size=(3.4, 2.4), latex=True.

    Returns:
        The path of report.html.

    >>> import adaquantfl as aq
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     record = aq.run("demo", folder, rule="2bit", model="mlp", rounds=1, workers=1)
    ...     print(aq.report([record]).name)
    report.html
    """
    folders = [one.path if isinstance(one, records.RunRecord) else Path(one) for one in runs]
    folder = Path(out) if out is not None else folders[0]
    write_all(folders, folder, look=Look(**look))
    return folder / "report.html"


def write_all(
    folders: Sequence[Path], out: Path, skipped: Callable[[str], None] | None = None, look: Look | None = None
) -> str:
    """Write it for all runs in these folders; returns the text for the terminal.

    skipped: hears why a damaged run is left out.
    """
    look = look or Look()
    runs = chosen(records.find_runs(list(folders), skipped=skipped), look.methods)
    records.check_one_task(runs)
    out.mkdir(parents=True, exist_ok=True)
    drawn = figures.draw(runs, out, look.formats, look.size, look.font)
    by_measure = [tables.bits_table(runs, measure=measure) for measure in tables.measures(runs)]
    (out / "table.md").write_text("\n\n".join(map(tables.to_markdown, by_measure)) + "\n", encoding="utf-8")
    if look.latex:
        (out / "table.tex").write_text("\n".join(map(tables.to_latex, by_measure)), encoding="utf-8")
    (out / "history.csv").write_text(history_csv(runs, out), encoding="utf-8")
    page = write_report(runs, out / "report.html")
    main = sorted(drawn, key=lambda path: path.stem != "paper")[:1]
    where = [*(f"Figure: {path}" for path in main), f"Page: {page}"]
    return "\n".join([*map(tables.to_text, by_measure), *story(runs), "", *where])


def chosen(runs: Sequence[records.RunRecord], names: str) -> list[records.RunRecord]:
    """Return the runs of these methods, as `--methods` names them; ConfigError where one of them is not there."""
    if not names:
        return list(runs)
    there = {run.label for run in runs}
    wanted = {name: methods.label_of(name) for name in methods.names(names)}
    for name, label in wanted.items():
        if label not in there:
            raise ConfigError(f"No run here is of the method {name!r}. There are: {', '.join(sorted(there))}.")
    return [run for run in runs if run.label in wanted.values()]


def history_csv(runs: Sequence[records.RunRecord], home: Path) -> str:
    """One row per round; a run is named by its folder, seen from `home`, its method as in tables and figures.

    The columns are `COLUMNS`, then those of the history that are not among them; `seconds.train` becomes
    seconds_train.
    """
    rows = [
        {"run": run.seen_from(home), "method": label, "seed": run.seed} | flat(line)
        for label, group in records.group_runs(runs).items()
        for run in group
        for line in run.history
    ]
    there = {name for row in rows for name in row}
    known = ["run", "method", "seed", "round", *(name for name in COLUMNS if name in there)]
    names = list(dict.fromkeys([*known, *(name for row in rows for name in row)]))
    header = [name.replace(".", "_") for name in names]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        [header, *([_cell(row.get(name)) for name in names] for row in rows)]
    )
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"  # a spreadsheet would take it for a formula
    return json.dumps(value) if isinstance(value, dict | list) else value
