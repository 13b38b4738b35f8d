"""One self-contained HTML page from run directories: headline, figures, tables and how to repeat each run.

The page asks nothing of the network. Whatever comes out of a run directory is escaped on its way in.
"""

import base64
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from . import figures, tables
from .records import CONFIG, RunRecord, differing_settings, group_runs

_CAPTIONS = {
    "loss": ("Training loss against bits sent by one client", "loss", "paper_bits"),
    "accuracy": ("Test accuracy against bits sent by one client", "test_accuracy", "paper_bits"),
    "bits": ("Bits an element and quantization levels against bits sent", "bits_per_element", "paper_bits"),
    "wire": ("Training loss against measured bytes of all clients", "loss", "wire_bytes_up"),
    "time": ("Training loss against simulated time over the runs' links", "loss", "simulated_seconds"),
}
_SHARED = ("dataset", "model", "partition", "clients", "tau", "eta", "batch_size")
_PNG = b"\x89PNG\r\n\x1a\n"


def write_report(runs: Sequence[RunRecord], out: Path) -> Path:
    """Write the page to `out`, an .html file or a directory for report.html, and return where it is."""
    page = out if out.suffix == ".html" else out / "report.html"
    differing = differing_settings(runs)
    note = f"These runs also differ in: {', '.join(differing)}." if differing else ""
    text = Template(files("adaquantfl.experiments").joinpath("report.html").read_text(encoding="utf-8")).substitute(
        title=escape(_title(runs)),
        headline=escape(tables.headline(runs)),
        chips=_chips(runs, differing),
        note=f'<p class="note">{escape(note)}</p>' if note else "",
        dark_colours=_dark_colours(),
        figures="\n".join(_figure(name, runs) for name in _CAPTIONS if _has(name, runs)),
        tables="\n".join(_target_table(runs, measure) for measure in ("paper_bits", "wire_bytes_up")),
        partitions=_partitions(runs),
        runs_table=_runs_table(runs),
        runs="\n".join(_run(run, page.parent) for run in runs),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return page


def _title(runs: Sequence[RunRecord]) -> str:
    names = sorted({f"{run.config.get('model', 'model')} on {run.config.get('dataset', 'data')}" for run in runs})
    return f"AdaQuantFL report: {', '.join(names)}"


def _chips(runs: Sequence[RunRecord], differing: list[str]) -> str:
    shared = [
        f"{key.replace('_', ' ')}: {runs[0].config[key]}"
        for key in _SHARED
        if runs and key in runs[0].config and key not in differing
    ]
    seeds = len({run.seed for run in runs})
    return "".join(f"<li>{escape(text)}</li>" for text in [*shared, f"seeds: {seeds}"])


def _has(name: str, runs: Sequence[RunRecord]) -> bool:
    if name == "time" and not figures.timed(runs):
        return False
    # Loss is always drawn, so that runs without a single round fail with the reason rather than vanish.
    return name == "loss" or any(run.final(_CAPTIONS[name][1]) is not None for run in runs)


def _figure(name: str, runs: Sequence[RunRecord]) -> str:
    caption, key, x = _CAPTIONS[name]
    picture = figures.figure(name, runs, size=(5.0, 5.4 if name == "bits" else 4.1))
    alt = f"{caption}. {_in_words(runs, key, x)}"
    svg = _inline_svg(figures.to_svg(picture), name, alt)
    return f'<figure id="figure-{name}">\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>'


def _in_words(runs: Sequence[RunRecord], key: str, x: str) -> str:
    """Where each line ends: the figure's message for a reader who cannot see it."""
    ends, unit = [], figures.X_UNITS[x]
    for label, group in group_runs(runs).items():
        pairs = [(value, float(run.history[-1][x])) for run in group if (value := run.final(key)) is not None]
        if pairs:
            value, sent = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
            ends.append(f"{label} ends at {value:.3g} after {tables.amount(sent, unit)}")
    return "; ".join(ends) + "." if ends else ""


def _inline_svg(svg: str, name: str, alt: str) -> str:
    """Matplotlib's SVG as part of a page: ids of its own, no namespaces, colours that follow the theme."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#|url\(#', lambda match: f"{match.group()}{name}-", svg)
    svg = svg.replace(figures.INK, "currentColor").replace(figures.GRID, "var(--line)")
    svg = svg.replace("#ffffff", "var(--card)")
    for colour in _colours():
        svg = svg.replace(colour, f"var(--{colour[1:]}, {colour})")
    opening = f'<svg role="img" aria-label="{escape(alt)}"'
    return re.sub(r'^<svg width="[^"]*" height="[^"]*"', lambda _: opening, svg)


def _colours() -> list[str]:
    return [style.colour for style in (*figures.STYLES.values(), *figures.SPARE)]


def _dark_colours() -> str:
    """The methods' colours mixed with white, for lines that stand out from a dark page."""

    def lighter(colour: str) -> str:
        channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
        return "#" + "".join(f"{round(channel + 0.38 * (255 - channel)):02x}" for channel in channels)

    return " ".join(f"--{colour[1:]}: {lighter(colour)};" for colour in _colours())


def _target_table(runs: Sequence[RunRecord], measure: tables.Measure) -> str:
    table = tables.bits_table(runs, measure=measure)
    header, *rows = table.grid()
    return _table(f"{table.caption}.", header, rows)


def _runs_table(runs: Sequence[RunRecord]) -> str:
    header = [
        "Method",
        "seed",
        "rounds",
        "final loss",
        "test accuracy",
        "bits a client",
        "bytes up",
        "bytes down",
    ]
    rows = []
    for run in runs:
        last = run.history[-1] if run.history else {}
        loss, accuracy = run.final("loss"), run.final("test_accuracy")
        rows.append(
            [
                run.label,
                str(run.seed),
                str(last.get("round", 0)) + ("" if run.finished else " so far"),
                tables.NOT_REACHED if loss is None else tables.significant(loss),
                tables.NOT_REACHED if accuracy is None else f"{accuracy:.2%}",
                tables.amount(last.get("paper_bits", 0)),
                tables.amount(last.get("wire_bytes_up", 0), "B"),
                tables.amount(last.get("wire_bytes_down", 0), "B"),
            ]
        )
    return _table("Where each run ended.", header, rows)


def _table(caption: str, header: list[str], rows: Iterable[list[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in header)
    body = "\n".join(
        f'<tr{" class=ours" if row[0].startswith("AdaQuantFL") else ""}><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{_cell(text)}</td>" for text in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="card scroll" role="region" tabindex="0" aria-label="{escape(caption)}">\n<table>'
        f"<caption><span>{escape(caption)}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>\n</div>"
    )


def _cell(text: str) -> str:
    """A remark in brackets (a ratio, how many seeds) goes on a line of its own below the number."""
    match = re.fullmatch(r"(.+?) [(\[](.+)[)\]]", text)
    return f"{escape(match[1])}<small>{escape(match[2])}</small>" if match else escape(text)


def _partitions(runs: Sequence[RunRecord]) -> str:
    """Each distinct partition.png once: all methods of one seed share it."""
    pictures: dict[bytes, list[str]] = {}
    for run in runs:
        path = run.path / "partition.png"
        if path.is_file() and (data := path.read_bytes()).startswith(_PNG):
            pictures.setdefault(data, []).append(f"{run.label} seed {run.seed}")
    if not pictures:
        return ""
    items = []
    for data, names in pictures.items():
        caption = escape(f"How the data were divided among the clients: {', '.join(names)}")
        image = f'<img src="data:image/png;base64,{base64.b64encode(data).decode()}" alt="{caption}">'
        items.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    inside = "\n".join(items)
    return f'<section><h2>Data of the clients</h2>\n<div class="figures">\n{inside}\n</div></section>'


def _run(run: RunRecord, home: Path) -> str:
    # Relative to the page: it then holds on another machine, and tells nobody about this one.
    command = f"adaquantfl run {shlex.quote(os.path.join(os.path.relpath(run.path, home), CONFIG))}"
    summary = run.summary or {}
    state = "" if run.finished else ", unfinished"
    parts = [
        f"<details>\n<summary>{escape(run.label)}, seed {run.seed}<span>{state}</span></summary>\n<div>",
        f"<pre><code>{escape(command)}</code></pre>",
        f"<h3>Configuration</h3>{_definitions(run.config)}",
    ]
    if isinstance(versions := summary.get("versions"), dict):
        parts.append(f"<h3>Versions</h3>{_definitions(versions)}")
    facts: dict[str, Any] = {key: summary[key] for key in ("dimension", "seconds", "model_sha256") if key in summary}
    if facts:
        parts.append(f"<h3>Result</h3>{_definitions(facts)}")
    return "\n".join([*parts, "</div>\n</details>"])


def _definitions(values: dict[str, Any]) -> str:
    items = (f"<div><dt>{escape(str(key))}</dt><dd>{escape(_plain(value))}</dd></div>" for key, value in values.items())
    return f"<dl>{''.join(items)}</dl>"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
