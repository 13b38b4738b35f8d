"""Write the rules' tables of docs/rivals.md from evidence/records/rivals and evidence/records/rivals-full.

python evidence/pages/rivals_page.py
"""

from __future__ import annotations

from pathlib import Path

from adaquantfl.report.tables import markdown
from evidence.pages.marked import ROOT, write
from evidence.studies import rivals
from evidence.studies.rivals import Groups

RECORDS = ROOT / "evidence" / "records" / "rivals"
STUDIES = {
    "rules": RECORDS,
    "rules-full": ROOT / "evidence" / "records" / "rivals-full",
}  # by mark
PAGE = ROOT / "docs" / "rivals.md"
TITLES = {"iid": "i.i.d.", "sorted": "sorted by label", "dirichlet": "Dirichlet, alpha = 0.3"}
PAPER, DADAQUANT = "adaquant", "dadaquant-time"
FEWER, AHEAD = 3.0, 1.2  # the targets: times fewer bytes than the paper's rule; ahead of DAdaQuant in one of the two


def rules(records: Path) -> str:
    parts = []
    for folder, groups in rivals.load(records).items():
        level = rivals.level(groups)
        parts.append(f"**{TITLES[folder]}**\n\n{markdown(rivals.table(groups, level))}")
    for folder in rivals.PARTITIONS:
        for name, rounds in rivals.stopped(records, folder).items():
            after = ", ".join(map(str, rounds))
            parts.append(f"{TITLES[folder]}: `{name}` **diverged** after {after} rounds; those runs are in no table.")
    return "\n\n".join([*parts, verdicts(records)]) if parts else "Not run yet."


def verdicts(records: Path) -> str:
    """The targets, partition by partition."""
    lines = []
    for folder, groups in rivals.load(records).items():
        lost = {name: len(runs) for name, runs in rivals.stopped(records, folder).items()}
        if {rivals.OURS, PAPER} <= set(groups) and (DADAQUANT in groups or DADAQUANT in lost):
            but = f" **But {lost[rivals.OURS]} of our own seeds diverged.**" if rivals.OURS in lost else ""
            beside = [beside_paper(groups), beside_dadaquant(groups, lost.get(DADAQUANT, 0))]
            lines.append(f"- {TITLES[folder]}: {'; '.join(beside)}.{but}")
    text = (
        f"Targets, at the lowest loss that all runs of a partition reached: at least {FEWER:g} times fewer bytes than "
        f"AdaQuantFL with s0 = 2; no more bytes and rounds than DAdaQuant, and ahead in one of them by {AHEAD:g}."
    )
    return "\n".join([text, "", *lines]) if lines else text


def beside_paper(groups: Groups) -> str:
    (fewer, _), seeds = ratios(groups, PAPER)
    return f"AdaQuantFL takes {fewer:.1f} times our bytes ({verdict(fewer >= FEWER)}, {seeds} of {rivals.SEEDS} seeds)"


def beside_dadaquant(groups: Groups, lost: int) -> str:
    if DADAQUANT not in groups:
        return f"DAdaQuant diverged with {lost} of {rivals.SEEDS} seeds"
    (less, sooner), seeds = ratios(groups, DADAQUANT)
    met = verdict(less >= 1 and sooner >= 1 and max(less, sooner) >= AHEAD)
    both = f"DAdaQuant {less:.2f} times our bytes and {sooner:.2f} times our rounds"
    return f"{both} ({met}, {seeds} of {rivals.SEEDS} seeds)"


def ratios(groups: Groups, rival: str) -> tuple[list[float], int]:
    """A rival's mean bytes and rounds over ours, on the seeds that both have, and how many those are."""
    level, shared = rivals.level(groups), rivals.same_seeds(groups, (rivals.OURS, rival))
    means = [
        rivals.mean(shared[rival], level, key) / rivals.mean(shared[rivals.OURS], level, key)
        for key in ("wire_bytes_up", "round")
    ]
    return means, len(shared[rival])


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def main() -> None:
    write(PAGE, {mark: rules(records) for mark, records in STUDIES.items()})


if __name__ == "__main__":
    main()
