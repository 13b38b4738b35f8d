"""One self-contained HTML page from run directories: headline, interactive plots, tables and how to repeat each run.

The page asks nothing of the network: its script and style are in it, and its policy forbids anything else. Whatever
comes out of a run directory is escaped on its way in.
"""

import base64
import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ..runs.columns import COLUMNS
from ..runs.records import CONFIG, RunRecord, differing_settings, group_runs
from . import tables
from .headline import headline
from .page_data import embedded, plot_data, plots

_SCRIPTS = ("numbers.js", "series.js", "zoom.js", "save.js", "plot.js", "page.js")
_SHARED = (
    "task", "dataset", "model", "partition", "clients", "clients_per_round", "rounds", "tau", "eta", "batch_size",
    "evaluate_every",
)  # fmt: skip
_FACTS = ("dimension", "seconds", "model_sha256", "commit", "processor")  # of a summary, in a run's details
_MOST_VALUES = 6  # of a setting, in its chip


def write_report(runs: Sequence[RunRecord], out: Path) -> Path:
    """Write the page to `out`, an .html file or a directory for report.html, and return where it is."""
    page = out if out.suffix == ".html" else out / "report.html"
    text = render(content(runs, page.parent))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return page


def content(runs: Sequence[RunRecord], home: Path) -> dict[str, Any]:
    """What the page shows, as JSON can carry it: the plots' numbers, and the HTML of each section by name."""
    names = {run.path: f"{label}, seed {run.seed}" for label, group in group_runs(runs).items() for run in group}
    to_reach_a_loss = [tables.bits_table(runs, measure=name) for name in tables.measures(runs) if name != "round"]
    return {
        "methods": plot_data(runs),
        "sections": {
            "title": escape(f"AdaQuantFL report: {', '.join(sorted({run.experiment for run in runs}))}"),
            "headline": escape(headline(runs)),
            "chips": _chips(runs, differing_settings(runs)),
            "targets": "\n".join(_table(f"{table.caption}.", *table.grid()) for table in to_reach_a_loss),
            "totals": _runs_table(runs, names),
            "runs": "\n".join(_run(run, names[run.path], home) for run in runs),
        },
    }


def render(shown: dict[str, Any], live: str = "") -> str:
    """The whole page. live: where its script asks for newer content; "": nowhere."""
    script = "\n".join(_part(name) for name in _SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
    return Template(_part("page.html")).substitute(
        shown["sections"],
        policy=policy + ("; connect-src 'self'" if live else ""),
        style=_part("page.css"),
        script=script,
        live=escape(live),
        data=embedded({"plots": plots(), "methods": shown["methods"]}),
    )


def _part(name: str) -> str:
    return files("adaquantfl.report").joinpath("page_files", name).read_text(encoding="utf-8")


def _chips(runs: Sequence[RunRecord], differing: list[str]) -> str:
    """What the runs share, and every setting in which they differ, with all its values."""
    chips = [
        f"<li>{escape(_chip(key, runs[:1]))}</li>"
        for key in _SHARED
        if runs and runs[0].config.get(key) not in (None, "", 0) and key not in differing
    ]
    chips.append(f"<li>seeds: {len({run.seed for run in runs})}</li>")
    chips += [f'<li class="differs">{escape(_chip(key, runs))}</li>' for key in differing]
    note = '<p class="note">Settings with a coloured border are not the same in all runs.</p>' if differing else ""
    return f'<ul class="chips" aria-label="Settings of these runs">{"".join(chips)}</ul>{note}'


def _chip(key: str, runs: Sequence[RunRecord]) -> str:
    values = dict.fromkeys(_plain(run.setting(key)) or "not set" for run in runs)
    shown = [value[:8] if key.endswith("sha256") else value for value in values]
    more = f" and {len(shown) - _MOST_VALUES} more" if len(shown) > _MOST_VALUES else ""
    return f"{key}: {' | '.join(shown[:_MOST_VALUES])}{more}"


def _runs_table(runs: Sequence[RunRecord], names: dict[Path, str]) -> str:
    """The last values of each run: the columns that have a head, where a run measured them."""
    shown = [
        column for name, column in COLUMNS.items() if column.head and any(run.final(name) is not None for run in runs)
    ]
    rows = []
    for run in runs:
        cells = [tables.value_text(column.name, run.final(column.name)) for column in shown]
        if not run.finished:
            cells[0] += " so far"
        rows.append([names[run.path], *cells])
    return _table("Where each run ended.", ["Run", *(column.head for column in shown)], *rows)


def _table(caption: str, header: list[str], *rows: list[str]) -> str:
    ours = [row[0].startswith("AdaQuantFL") for row in rows]
    stressed = not all(ours) or len(rows) == 1  # nothing stands out where everything would
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in header)
    body = "\n".join(
        f'<tr{" class=ours" if stressed and own else ""}><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{_cell(text)}</td>" for text in row[1:])
        + "</tr>"
        for row, own in zip(rows, ours, strict=True)
    )
    return (
        f'<div class="card scroll" role="region" tabindex="0" aria-label="{escape(caption)}">\n<table>'
        f"<caption><span>{escape(caption)}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>\n</div>"
    )


def _cell(text: str) -> str:
    """A remark in brackets (a ratio, how many seeds) is on a line of its own below the number."""
    match = re.fullmatch(r"(.+?) [(\[](.+)[)\]]", text)
    return f"{escape(match[1])}<small>{escape(match[2])}</small>" if match else escape(text)


def _run(run: RunRecord, name: str, home: Path) -> str:
    command = f"adaquantfl run {shlex.quote(os.path.join(run.seen_from(home), CONFIG))}"
    summary, state = run.summary or {}, "" if run.finished else ", unfinished"
    facts = {key: summary[key] for key in _FACTS if summary.get(key)}
    parts = {"Configuration": run.config, "Versions": summary.get("versions"), "Result": facts}
    shown = [f"<h3>{title}</h3>{_definitions(values)}" for title, values in parts.items() if values]
    head = f"<details>\n<summary>{escape(name)}<span>{state}</span></summary>\n<div>"
    return "\n".join([head, f"<pre><code>{escape(command)}</code></pre>", *shown, "</div>\n</details>"])


def _definitions(values: dict[str, Any]) -> str:
    items = (f"<div><dt>{escape(str(key))}</dt><dd>{escape(_plain(value))}</dd></div>" for key, value in values.items())
    return f"<dl>{''.join(items)}</dl>"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
