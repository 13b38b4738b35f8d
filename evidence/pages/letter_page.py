"""Writes the first table and the first figure of docs/results.md from evidence/records/letter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from adaquantfl.report import figures
from adaquantfl.runs.records import method_label
from evidence.pages.marked import ROOT, write
from evidence.studies import claims, letter

Panels = dict[str, dict[str, list[letter.Trace]]]

PAGE = ROOT / "docs" / "results.md"
FIGURE = ROOT / "docs" / "figures" / "letter.svg"
SHOWN = (0.2, 0.1, 0.05, 0.02)
TRIAL_SHOWN = (1.5, 1.2, 0.8, 0.4, 0.3)
SLOWER_SHOWN = (0.6, 0.5, 0.4)
WHOLE_SHOWN = (0.4, 0.35, 0.3, 0.25)
AIMED = (0.1, 0.05, 0.02)
AIM_LEVEL = 0.05
AIMS = {"paper_bits": ("bits", 1.25), "bytes_up": ("bytes", 1.6)}  # how many times AdaQuantFL's 4 bits take at least
RIVALS = ("2bit", "3bit", "4bit", "8bit")
_NARROW = "ResNet-18, a quarter of its width"
GLANCE = {  # every setting that has a verdict, and the losses at which it is shown
    "fmnist-sample-cnn-iid": ("CNN, 10,000 pictures, i.i.d.", AIMED),
    "fmnist-sample-cnn-decay": ("CNN, 10,000 pictures, i.i.d., variable rate", AIMED),
    letter.FULL: ("CNN, 60,000 pictures, i.i.d.", (0.35, 0.3, 0.25)),
    "fmnist-sample-cnn-sorted": ("CNN, 10,000 pictures, sorted labels", (0.02,)),
    letter.SLOW: ("CNN, 10,000 pictures, sorted labels, eta = 0.03", (0.4,)),
    letter.RESNET: (f"{_NARROW}, i.i.d.", (0.3,)),
    letter.RESNET_DECAY: (f"{_NARROW}, i.i.d., variable rate", (0.4,)),
    letter.RESNET_SORTED: (f"{_NARROW}, sorted labels", (1.5,)),
}
FIGURE_PANELS = tuple(name for name in GLANCE if name not in ("fmnist-sample-cnn-sorted", letter.RESNET_DECAY))
_STYLES = figures.styles([method_label(method) for method in letter.METHODS])  # a method looks as in other figures
COLOURS = {method: _STYLES[method_label(method)].colour for method in letter.METHODS}
TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2)
TITLES = letter.PANELS | letter.WHOLE | letter.SLOWER | letter.TRIALS


def cell(found: letter.Cell, ours: letter.Cell) -> str:
    """Mean and deviation, and how many times AdaQuantFL's."""
    if found.mean is None:
        return found.missed
    return _mean(found) + (f" ({found.mean / ours.mean:.2f}x)" if ours.mean else "")


def _mean(found: letter.Cell) -> str:
    assert found.mean is not None
    digits = 0 if found.mean >= 100 else 1
    return f"{found.mean:.{digits}f}" + (f" ± {found.deviation:.{digits}f}" if len(found.values) > 1 else "")


def table(panels: Panels, measure: str, levels: Sequence[float] = SHOWN) -> str:
    """Panels and methods down, losses across."""
    rows = [
        f"| data and rate | method | seeds | {' | '.join(f'loss {level:g}' for level in levels)} | lowest loss |",
        "| --- | --- | ---: |" + " ---: |" * (len(levels) + 1),
    ]
    for name, panel in panels.items():
        ours = letter.cells(panel["adaquant"], measure, levels)
        for method, traces in panel.items():
            found = letter.cells(traces, measure, levels)
            low = f"{min(one.lowest for one in traces):.3g}"
            for word, count in {
                "diverged": sum(bool(one.failure) for one in traces),
                "at a floor": sum(one.at_floor for one in traces),
                "stopped early": sum(not one.ended for one in traces),
            }.items():
                low += f", {count} of {len(traces)} {word}" if count else ""
            shown = [cell(found[level], ours[level]) for level in levels]
            label = letter.METHODS[method]
            label = f"**{label}**" if method == "adaquant" else label
            rows.append(f"| {TITLES[name]} | {label} | {len(traces)} | {' | '.join(shown)} | {low} |")
    return "\n".join(rows)


def summary(panels: Panels) -> str:
    """Whether AdaQuantFL is cheapest, panel by panel."""
    lines = []
    for name, panel in panels.items():
        rivals = ", ".join(letter.METHODS[method] for method in letter.judged(panel)) or "none so far"
        judged = ", ".join(f"{level:g}: {letter.verdict(panel, level)}" for level in SHOWN)
        lines.append(f"- {letter.PANELS[name]} (three seeds: {rivals}): {judged}")
    return "\n".join(lines)


def aims(panels: Panels) -> str:
    """What was aimed at before the runs, met or missed; the factors are means over the seeds, and seed by seed."""
    rows = [
        f"| aim | {' | '.join(TITLES[name] for name in panels)} |",
        "| --- |" + " --- |" * len(panels),
    ]
    texts = {
        "fewer bits than every fixed level that was run, to 0.1, 0.05 and 0.02, every seed": [
            _met(all(letter.verdict(one, level) == "yes" for level in AIMED)) for one in panels.values()
        ],
        "2 bits never get to any of them": [
            _met(not any(cell.reached for cell in letter.cells(one["2bit"], "paper_bits", AIMED).values()))
            for one in panels.values()
        ],
    }
    for measure, (word, least) in AIMS.items():
        aim = f"4 bits take at least {least:g} times AdaQuantFL's {word} to {AIM_LEVEL:g}"
        texts[aim] = [_factor(one, measure, least) for one in panels.values()]
    return "\n".join([*rows, *(f"| {aim} | {' | '.join(cells)} |" for aim, cells in texts.items())])


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def _factor(panel: dict[str, list[letter.Trace]], measure: str, least: float) -> str:
    theirs, ours = (letter.cells(panel[method], measure, [AIM_LEVEL])[AIM_LEVEL] for method in ("4bit", "adaquant"))
    if theirs.mean is None or ours.mean is None:
        return f"**missed**: AdaQuantFL {ours.missed}, 4 bits {theirs.missed}"
    each = ", ".join(f"{a / b:.2f}" for a, b in zip(theirs.reached, ours.reached, strict=False))
    return f"{_met(theirs.mean / ours.mean >= least)}: {theirs.mean / ours.mean:.2f} ({each})"


def headlines(panels: Panels) -> str:
    """The paper's claims about the CNN."""
    return "\n".join(map(_line, claims.letter_verdicts(panels)))


def elsewhere(records: Path, names: Iterable[str]) -> str:
    """The paper's claims, judged in settings that are not its own; other panels have no line."""
    panels = load(records, (name for name in names if name in claims.ELSEWHERE))
    return "\n".join(_line(claims.fewest_bits(panel, *claims.ELSEWHERE[name])) for name, panel in panels.items())


def _line(one: claims.Verdict) -> str:
    return f"- **{one.outcome.capitalize()}.** The paper, {one.where}: {one.claim}. Here: {one.here}"


def load(records: Path, names: Iterable[str] = letter.PANELS) -> Panels:
    """The panels that have AdaQuantFL."""
    return {name: panel for name in names if "adaquant" in (panel := letter.load(records / name))}


def glance(records: Path) -> str:
    """One row per setting and loss: bits as multiples of AdaQuantFL's."""
    rows = [
        f"| setting | to loss | AdaQuantFL | {' | '.join(letter.METHODS[one] for one in RIVALS)} | fewest bits? |",
        "| --- | ---: | ---: |" + " ---: |" * len(RIVALS) + " --- |",
    ]
    for name, panel in load(records, GLANCE).items():
        title, levels = GLANCE[name]
        for level in levels:
            found = {method: letter.cells(traces, "paper_bits", [level])[level] for method, traces in panel.items()}
            shown = [short(found["adaquant"], None), *(short(found.get(one), found["adaquant"].mean) for one in RIVALS)]
            rows.append(f"| {title} | {level:g} | {' | '.join(shown)} | **{letter.verdict(panel, level)}** |")
    return "\n".join(rows)


def short(found: letter.Cell | None, ours: float | None) -> str:
    """How many times AdaQuantFL's bits, or the bits themselves; with the seeds where they are too few to judge."""
    if found is None:
        return "—"
    text = found.missed if found.mean is None else f"{found.mean / ours:.2f}x" if ours else f"{_mean(found)} d"
    seeds = len(found.values)
    return text if seeds >= letter.ENOUGH_SEEDS else f"{text} ({seeds} seed{'s' if seeds > 1 else ''})"


def draw(records: Path, path: Path) -> None:
    """Loss against paper bits, a panel per setting, a line for each seed."""
    panels = load(records, FIGURE_PANELS)
    figure, axes = plt.subplots(3, 2, figsize=(10, 11.4))
    for axis, (name, panel) in zip(axes.flat, panels.items(), strict=False):
        for method, traces in panel.items():
            colour = COLOURS[method]
            for one in traces:
                label = letter.METHODS[method] if one is traces[0] else None
                spent = [bits / one.dimension for bits in one.paper_bits]
                axis.plot(spent, one.losses, color=colour, lw=2 if method == "adaquant" else 1, label=label)
                if one.failure:
                    axis.plot(spent[-1], one.losses[-1], "x", color=colour)
        quantized = [one for name in panel if name != "fp32" for one in panel[name]]
        # float32's bits would squeeze the other lines: its line leaves the figure
        axis.set_xlim(0, 1.05 * max(one.paper_bits[-1] / one.dimension for one in quantized))
        axis.set(yscale="log", ylabel="training loss", xlabel="bits of one client / d (paper's formula)")
        axis.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
        axis.minorticks_off()
        axis.set_ylim(0.9 * min(one.lowest for one in quantized), 3)
        axis.set_title(GLANCE[name][0], fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def blocks(records: Path = ROOT / letter.RECORDS) -> dict[str, str]:
    """The marked texts of the page."""
    panels = load(records)
    return {
        "letter-glance": glance(records),
        "letter": table(panels, "paper_bits"),
        "letter-verdicts": summary(panels),
        "letter-aims": aims(load(records, [*list(letter.PANELS)[:2], letter.FULL])),
        "letter-headlines": headlines(panels),
        "letter-bytes": table(panels, "bytes_up"),
        "letter-whole-headline": elsewhere(records, letter.WHOLE),
        "letter-whole": table(load(records, letter.WHOLE), "paper_bits", WHOLE_SHOWN),
        "letter-whole-bytes": table(load(records, letter.WHOLE), "bytes_up", WHOLE_SHOWN),
        "letter-slower-headline": elsewhere(records, letter.SLOWER),
        "letter-slower": table(load(records, letter.SLOWER), "paper_bits", SLOWER_SHOWN),
        "letter-resnet-headline": elsewhere(records, letter.TRIALS),
        "letter-resnet": table(load(records, letter.TRIALS), "paper_bits", TRIAL_SHOWN),
        "letter-resnet-bytes": table(load(records, letter.TRIALS), "bytes_up", TRIAL_SHOWN),
    }


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "letter"
    draw(ROOT / letter.RECORDS, FIGURE)
    write(PAGE, blocks())
