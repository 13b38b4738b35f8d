"""Writes "Where the headline holds" of docs/results.md and its figure from evidence/records/crossing."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from evidence.pages.marked import ROOT, write
from evidence.studies import crossing, letter

PAGE = ROOT / "docs" / "results.md"
FIGURE = ROOT / "docs" / "figures" / "crossing.svg"


def draw(records: Path, path: Path) -> None:
    """Loss against paper bits: a panel per norm, a row per batch size that was run."""
    run = [batch for batch in crossing.BATCHES if any(records.glob(f"batch-{batch}-*"))]
    figure, axes = plt.subplots(
        len(run), len(crossing.SCOPES), figsize=(9, 3.6 * len(run)), sharex=True, sharey=True, squeeze=False
    )
    for axis, place in zip(axes.T.flat, crossing.places(run), strict=True):
        runs = letter.load(records / place.folder)
        if not runs:
            axis.text(0.5, 0.5, "not run", ha="center", transform=axis.transAxes)
        for number, method in enumerate(crossing.COMPARED):
            for one in runs.get(method, []):
                spent = [bits / one.dimension for bits in one.paper_bits]
                axis.plot(spent, one.losses, color=f"C{number}", label=letter.METHODS[method])
        axis.set(yscale="log", ylim=(0.13, 1.2))
        axis.set_title(place.title, fontsize=10)
        axis.grid(alpha=0.3)
        if runs:
            axis.legend(fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("bits of one client / d (paper's formula)")
    for axis in axes[:, 0]:
        axis.set_ylabel("training loss")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def blocks(records: Path = ROOT / crossing.RECORDS) -> dict[str, str]:
    """The marked text of the page."""
    return {"crossing": crossing.table(records)}


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "crossing"
    draw(ROOT / crossing.RECORDS, FIGURE)
    write(PAGE, blocks())
