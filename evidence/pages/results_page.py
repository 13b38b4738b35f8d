"""Write the figures and tables of docs/results.md and docs/how-to/choose.md from paper and sensitivity.

python evidence/pages/results_page.py

It takes what there is: any panels, any methods, runs that have not used up their budget. The text around the tables is
written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adaquantfl.report import tables
from evidence.pages.marked import ROOT, write
from evidence.studies import claims, panels, sensitivity
from evidence.studies.panels import Panel

PAPER, SETTINGS = ROOT / "evidence" / "records" / "paper", ROOT / "evidence" / "records" / "sensitivity"
FIGURES = "figures"  # beside the pages
FIXED_RATE_IID = ("cifar-resnet18-iid", "fmnist-cnn-iid")
LOSS_ROWS = ("loss", "round_loss", "bits_per_element")


def blocks(found: Sequence[Panel]) -> dict[str, str]:
    """Every generated part of docs/results.md by its name."""
    return {
        "runs": tables.markdown(panels.extents(found)),
        "headlines": headlines(found),
        "target": target(found),
        "figures": "\n\n".join(f"![{alt}]({FIGURES}/{name}.png)" for name, (alt, _, _, _) in pictures(found).items()),
        "bits": bits(found),
        "floors": tables.markdown(panels.floors(found)),
        "accuracy": accuracy(found),
    }


def pictures(found: Sequence[Panel]) -> dict[str, tuple[str, list[Panel], Sequence[str], str]]:
    """What each figure shows: a text for those who cannot see it, its panels, its rows and its horizontal axis."""
    shown = {}
    for task, group in by_task(found).items():
        place, x = group[0].place, "paper_bits"
        loss = f"Figure {place.loss_figure}: {task}, global loss, round loss and bits per element against bits sent"
        accuracy = f"Figure {place.accuracy_figure}: {task}, test accuracy against bits sent"
        shown[f"figure-{place.loss_figure}"] = (loss, group, LOSS_ROWS, x)
        shown[f"figure-{place.accuracy_figure}"] = (accuracy, group, ["test_accuracy"], x)
        wire = f"Figure {place.loss_figure} on the wire: {task}, global loss against the bytes that all clients sent"
        shown[f"figure-{place.loss_figure}-wire"] = (wire, group, ["loss"], "wire_bytes_up")
    return dict(sorted(shown.items()))


def by_task(found: Sequence[Panel]) -> dict[str, list[Panel]]:
    groups: dict[str, list[Panel]] = {}
    for panel in found:
        groups.setdefault(panel.place.task, []).append(panel)
    return groups


def headlines(found: Sequence[Panel]) -> str:
    """The paper's claims in the second setting. One seed settles nothing: each is open, with what was seen so far."""
    return "\n".join(
        f"- **Open{'' if verdict.outcome == 'open' else f'; so far {verdict.outcome}'}.** The paper, {verdict.where}: "
        f"{verdict.claim}. Here: {verdict.here}"
        for verdict in claims.verdicts(found)
    )


def target(found: Sequence[Panel]) -> str:
    """Whether AdaQuantFL is cheapest to the lowest common loss, and what its wire takes of the paper's bits."""
    parts = [tables.markdown(races(found))]
    for panel in found:
        result = claims.race(panel) if panel.name in FIXED_RATE_IID else None
        if result is not None:
            verdict = "met" if result.ratio > 1 else "**missed**"
            parts.append(
                f"{panel.title}, {panel.extent}: {verdict}. What loss {result.level:g} took:\n\n"
                f"{tables.markdown(panels.way_to_common_loss(panel))}"
            )
    wire = [
        [panel.title, f"1/{ratio:.0f}", "met" if ratio >= 100 else "**missed**"]
        for panel in found
        if panel.name.startswith("fmnist-cnn") and (ratio := claims.wire_ratio(panel)) is not None
    ]
    header = ["AdaQuantFL's bytes on the wire", "of its paper bits", "target: 1/100"]
    return "\n\n".join([*parts, tables.markdown([header, *wire])])


def races(found: Sequence[Panel]) -> list[list[str]]:
    """AdaQuantFL against the cheapest fixed level in every panel, in paper bits and in bytes."""
    header = ["To the lowest common loss", "loss"]
    for what in ("bits", "bytes"):
        header += [f"AdaQuantFL, {what}", f"cheapest fixed level, {what}", "ratio"]
    grid = [header]
    for panel in found:
        formula, wire = claims.race(panel), claims.race(panel, "wire_bytes_up")
        if formula and wire:
            row = [panel.title, f"{formula.level:g}"]
            for result, unit in ((formula, "b"), (wire, "B")):
                theirs = f"{tables.amount(result.theirs, unit)} ({result.best})"
                row += [tables.amount(result.ours, unit), theirs, f"{result.ratio:.2f}x"]
            grid.append(row)
    return grid


def accuracy(found: Sequence[Panel]) -> str:
    """Test accuracies, the paper's below ours where it names them."""
    header, *rows = panels.accuracies(found)
    grid = [header]
    for panel, row in zip(found, rows, strict=True):
        grid.append(row)
        if panel.name in claims.ACCURACIES:
            ours, sixteen = (f"{value:.2%}" for value in claims.ACCURACIES[panel.name])
            grid.append(["the paper", ours, *[""] * 3, sixteen, ""])
    return tables.markdown(grid)


def bits(found: Sequence[Panel]) -> str:
    """Bits and bytes to each loss level, panel by panel."""
    parts = []
    for panel in found:
        place = panel.place
        parts.append(f"### Figure {place.loss_figure} ({place.letter}): {panel.title}, {panel.extent}")
        for measure in ("paper_bits", "wire_bytes_up"):
            parts.append(tables.to_markdown(tables.bits_table(panel.runs, measure=measure)).rstrip())
    return "\n\n".join(parts)


def draw(found: Sequence[Panel], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, group, rows, x) in pictures(found).items():
        panels.figure(group, rows, x).savefig(folder / f"{name}.png", dpi=110)


def pages() -> dict[Path, dict[str, str]]:
    """The pages and their generated parts."""
    return {
        ROOT / "docs" / "results.md": blocks(panels.load_panels(PAPER)),
        ROOT / "docs" / "how-to" / "choose.md": {
            "settings": tables.markdown(sensitivity.table(sensitivity.load(SETTINGS)))
        },
    }


def main() -> None:
    for page, parts in pages().items():
        write(page, parts)
    draw(panels.load_panels(PAPER), ROOT / "docs" / FIGURES)
    sensitivity.figure(sensitivity.load(SETTINGS)).savefig(ROOT / "docs" / FIGURES / "sensitivity.png", dpi=110)
    print(headlines(panels.load_panels(PAPER)))


if __name__ == "__main__":
    main()
