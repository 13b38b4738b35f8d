"""Everything that is made from runs, in one folder: figures, tables, the history as CSV, and the page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..runs import records
from ..runs.columns import COLUMNS, flat
from ..runs.methods import label_of, split
from . import figures, tables
from .headline import story
from .page import write_report


def report(
    runs: Sequence[str | Path | records.RunRecord],
    out: str | Path | None = None,
    *,
    methods: str = "",
    formats: Sequence[str] = ("png", "pdf"),
) -> Path:
    """Write figures, tables, the history as CSV and the page of runs, and return the page's path.

    Args:
        runs: Records, folders of runs, or folders of such folders, all of one task.
        out: Where to write. By default the first run's folder.
        methods: Only these, as `adaquantfl compare --methods` names them. By default all.
        formats: Of figures: "png", "pdf", "svg".

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
    write_all(folders, folder, methods=methods, formats=formats)
    return folder / "report.html"


def write_all(
    folders: Sequence[Path],
    out: Path,
    skipped: Callable[[str], None] | None = None,
    methods: str = "",
    formats: Sequence[str] = ("png", "pdf"),
) -> str:
    """Write it for all runs in these folders; returns the text for the terminal.

    skipped: hears why a damaged run is left out.
    """
    runs = chosen(records.find_runs(list(folders), skipped=skipped), methods)
    records.check_one_task(runs)
    out.mkdir(parents=True, exist_ok=True)
    drawn = figures.draw(runs, out, formats)
    by_measure = [tables.bits_table(runs, measure=measure) for measure in tables.measures(runs)]
    (out / "table.md").write_text("\n\n".join(map(tables.to_markdown, by_measure)) + "\n", encoding="utf-8")
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
    wanted = {name: label_of(name) for name in split(names)}
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
