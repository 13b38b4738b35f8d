"""Write the rules' tables of docs/rivals.md from results/rivals and results/rivals-full.

python scripts/rivals_page.py
"""

from __future__ import annotations

from pathlib import Path

from marked import write

from adaquantfl.experiments import rivals
from adaquantfl.experiments.rivals import Groups
from adaquantfl.experiments.tables import markdown

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "rivals"
STUDIES = {"rules": RECORDS, "rules-full": ROOT / "results" / "rivals-full"}  # the page's mark: its records
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
        if {rivals.OURS, PAPER, DADAQUANT} <= set(groups):
            lost = len(rivals.stopped(records, folder).get(rivals.OURS, []))
            but = f" **But {lost} of our own seeds diverged**, so that the target is missed." if lost else ""
            lines.append(f"- {TITLES[folder]}: {verdict(groups)}{but}")
    text = (
        f"Targets, at the lowest loss that all runs of a partition reached: at least {FEWER:g} times fewer bytes than "
        f"AdaQuantFL with s0 = 2; no more bytes and rounds than DAdaQuant, and ahead in one of them by {AHEAD:g}."
    )
    return "\n".join([text, "", *lines])


def verdict(groups: Groups) -> str:
    level, groups = rivals.level(groups), rivals.same_seeds(groups, (rivals.OURS, PAPER, DADAQUANT))
    seeds = len(groups[PAPER])
    sent, rounds = (
        {name: rivals.mean(groups[name], level, key) for name in (rivals.OURS, PAPER, DADAQUANT)}
        for key in ("wire_bytes_up", "round")
    )
    fewer = sent[PAPER] / sent[rivals.OURS]
    less, sooner = sent[DADAQUANT] / sent[rivals.OURS], rounds[DADAQUANT] / rounds[rivals.OURS]
    ahead = less >= 1 and sooner >= 1 and max(less, sooner) >= AHEAD
    return (
        f"AdaQuantFL takes {fewer:.1f} times our bytes ({'met' if fewer >= FEWER else '**missed**'}); DAdaQuant "
        f"{less:.2f} times our bytes and {sooner:.2f} times our rounds ({'met' if ahead else '**missed**'}); "
        f"{seeds} of {rivals.SEEDS} seeds."
    )


def main() -> None:
    write(PAGE, {mark: rules(records) for mark, records in STUDIES.items()})


if __name__ == "__main__":
    main()
