"""Write the README's table from the record of `make demo` in evidence/records/demo.

    python evidence/pages/readme_tables.py [--from demo]

With --from, the runs of that folder are first copied to demo (configuration, history and summary of each) and
its picture to docs/figures.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from adaquantfl.report import tables
from adaquantfl.report.headline import headline
from adaquantfl.runs import records
from evidence.pages.marked import ROOT, write

RECORD = ROOT / "evidence" / "records" / "demo"


def copy_record(source: Path) -> None:
    """Keep what is small text, and the picture."""
    for path in sorted(source.glob("*/seed-*/*")):
        if path.name in ("config.toml", "history.jsonl", "summary.json"):
            target = RECORD / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (ROOT / "docs" / "figures").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "overview.png", ROOT / "docs" / "figures" / "demo.png")


def table(level: float) -> str:
    """One row a method: what it took to the lowest loss that all reached."""
    runs = records.find_runs([RECORD])
    by_measure = {m: tables.bits_table(runs, [level], measure=m) for m in ("paper_bits", "wire_bytes_up")}
    rows = []
    for bits, size in zip(by_measure["paper_bits"].rows, by_measure["wire_bytes_up"].rows, strict=True):
        cells = [size.cells[0], bits.cells[0]]
        texts = [tables.amount(cell.mean, unit) for cell, unit in zip(cells, "Bb", strict=True) if cell.mean]
        ratios = [f"{cell.ratio:.2f}x" if cell.ratio else "—" for cell in cells]
        rows.append([bits.method, texts[0], ratios[0], texts[1], ratios[1]])
    heads = [f"To training loss {level:g}", "bytes sent, all clients", "ratio", "the paper's bits, per client", "ratio"]
    compared = any(row[place] not in ("—", "1.00x") for row in rows for place in (2, 4))
    kept = range(5) if compared else (0, 1, 3)  # methods that tie at one evaluation have no ratio
    grid = [[row[place] for place in kept] for row in (heads, *rows)]
    return tables.markdown(grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, help="a folder that `make demo` wrote")
    arguments = parser.parse_args()
    if arguments.source:
        copy_record(arguments.source)
    runs = records.find_runs([RECORD])
    level = min(level for level in tables.loss_levels(runs) if _all_reach(runs, level))
    clients = runs[0].config["clients"]
    fixed = next(run for run in runs if run.method == "2bit")
    formula = clients * fixed.final("paper_bits") / 8
    fewer = formula / fixed.final("wire_bytes_up")
    shown = table(level)
    ratios = "; ratios are to AdaQuantFL" if "ratio" in shown else ""
    text = (
        f"{shown}\n\nThe loss is the lowest that all of them reached{ratios}. "
        f"{headline(runs)} The same 2-bit training takes {fewer:.0f}x fewer bytes on the wire than the formula "
        "counts: with one norm for a big tensor nearly every level is 0."
    )
    write(ROOT / "README.md", {"demo-table": text})
    print(text)


def _all_reach(runs: list[records.RunRecord], level: float) -> bool:
    return all(run.bits_to_loss(level) for run in runs)


if __name__ == "__main__":
    main()
