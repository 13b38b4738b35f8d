"""Everything that is made from runs, in one folder: figures, tables, the history as CSV, and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..runs import records
from . import figures, tables
from .export import history_csv
from .headline import headline
from .page import write_report


def report(runs: Sequence[str | Path | records.RunRecord], out: str | Path | None = None) -> Path:
    """Write figures, tables, the history as CSV and the page of runs, and return the page's path.

    Args:
        runs: Records, folders of runs, or folders of such folders, all of one task.
        out: Where to write. By default the first run's folder.

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
    write_all(folders, folder)
    return folder / "report.html"


def write_all(folders: Sequence[Path], out: Path, skipped: Callable[[str], None] | None = None) -> str:
    """Write it for all runs in these folders; returns the text for the terminal.

    skipped: hears why a damaged run is left out.
    """
    runs = records.find_runs(list(folders), skipped=skipped)
    records.check_one_task(runs)
    out.mkdir(parents=True, exist_ok=True)
    figures.draw(runs, out)
    by_measure = [tables.bits_table(runs, measure=measure) for measure in tables.measures(runs)]
    (out / "table.md").write_text("\n\n".join(map(tables.to_markdown, by_measure)) + "\n", encoding="utf-8")
    (out / "table.csv").write_text(tables.to_csv(by_measure), encoding="utf-8")
    (out / "history.csv").write_text(history_csv(runs, out), encoding="utf-8")
    page = write_report(runs, out / "report.html")
    sentence = headline(runs)
    return "\n\n".join([*map(tables.to_text, by_measure), f"{sentence}\nReport: {page}"])
