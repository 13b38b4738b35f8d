"""The tables and figures of docs/results.md, from records/paper."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaquantfl.report import figures
from adaquantfl.runs.labels import method_label
from evidence.pages.marked import RECORDS, verdict
from evidence.studies import paper
from evidence.studies.traces import Cell, Trace, cells

PAPER = RECORDS / "paper"
AIMED, AIM_LEVEL = (0.1, 0.05, 0.02), 0.05
AIMS = {"bytes_up": ("bytes", 1.6), "paper_bits": ("bits", 1.25)}  # how many times AdaQuantFL's 4 bits take at least
RIVALS = ("2bit", "3bit", "4bit", "8bit")
SAMPLE = {
    "fmnist-sample-cnn-iid": "i.i.d., fixed rate",
    "fmnist-sample-cnn-decay": "i.i.d., variable rate",
    "fmnist-sample-cnn-sorted": "sorted labels, fixed rate",
}
WHOLE = {paper.FULL: "all 60,000 pictures, i.i.d., fixed rate"}
BATCHES = {
    batch: f"all 60,000 pictures, i.i.d., fixed rate, batches of {size}"
    for batch, size in ((paper.BATCH_32, 32), (paper.BATCH_64, 64))
}
SLOWER = {paper.SLOW: "sorted labels, eta = 0.03"}
RESNET = {
    paper.RESNET: "a quarter of the width, i.i.d.",
    paper.RESNET_DECAY: "a quarter of the width, i.i.d., variable rate",
    paper.RESNET_SORTED: "a quarter of the width, sorted labels",
    paper.RESNET_FULL: "full width, all 50,000 pictures, i.i.d., batches of 64",
}
TITLES = SAMPLE | WHOLE | BATCHES | SLOWER | RESNET
LEVELS = {  # the losses that a table shows
    **dict.fromkeys(SAMPLE, (0.2, 0.1, 0.05, 0.02)),
    **dict.fromkeys(WHOLE, (0.4, 0.3, 0.25, 0.2, 0.17)),
    **dict.fromkeys(BATCHES, (0.3, 0.2, 0.14, 0.1, 0.07)),
    **dict.fromkeys(SLOWER, (0.6, 0.5, 0.4)),
    **dict.fromkeys(RESNET, (1.5, 1.2, 0.8, 0.4, 0.3)),
}
_NARROW = "ResNet-18, a quarter of its width"
GLANCE = {  # every setting that has a verdict, and the losses at which it is shown
    "fmnist-sample-cnn-iid": ("CNN, 10,000 pictures, i.i.d.", (0.1, 0.02)),
    "fmnist-sample-cnn-decay": ("CNN, 10,000 pictures, i.i.d., variable rate", (0.1, 0.02)),
    paper.FULL: ("CNN, 60,000 pictures, i.i.d., batches of 10", (0.35, 0.3, 0.25)),
    paper.BATCH_32: ("CNN, 60,000 pictures, i.i.d., batches of 32", (0.3, 0.1)),
    "fmnist-sample-cnn-sorted": ("CNN, 10,000 pictures, sorted labels", (0.02,)),
    paper.SLOW: ("CNN, 10,000 pictures, sorted labels, eta = 0.03", (0.4,)),
    paper.RESNET_FULL: ("ResNet-18, 50,000 pictures, i.i.d., batches of 64", (1.0, 0.6, 0.51)),
    paper.RESNET: (f"{_NARROW}, i.i.d.", (0.3,)),
    paper.RESNET_DECAY: (f"{_NARROW}, i.i.d., variable rate", (0.4,)),
    paper.RESNET_SORTED: (f"{_NARROW}, sorted labels", (1.5,)),
}
_NOT_DRAWN = ("fmnist-sample-cnn-sorted", paper.RESNET, paper.RESNET_DECAY, paper.RESNET_SORTED)
FIGURE_PANELS = tuple(name for name in GLANCE if name not in _NOT_DRAWN)
STALL = "adaquant-stall"
TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2)


def cell(found: Cell, ours: Cell) -> str:
    """Return mean and deviation, and how many times AdaQuantFL's."""
    if found.mean is None:
        return found.missed
    return _mean(found) + (f" ({found.mean / ours.mean:.2f}x)" if ours.mean else "")


def _mean(found: Cell) -> str:
    assert found.mean is not None
    digits = 0 if found.mean >= 100 else 1
    return f"{found.mean:.{digits}f}" + (f" ± {found.deviation:.{digits}f}" if len(found.values) > 1 else "")


def tables(names: Iterable[str]) -> str:
    """Return panels and methods down, losses across: bytes of all clients, then the paper's bits."""
    panels = load(names)
    return (
        f"Bytes of all clients, in MB:\n\n{table(panels, 'bytes_up')}\n\nBits of one client by the paper's formula, in "
        f"units of d:\n\n{table(panels, 'paper_bits')}"
    )


def table(panels: dict[str, dict[str, list[Trace]]], measure: str) -> str:
    levels = LEVELS[next(iter(panels))]
    rows = [
        f"| data and rate | method | seeds | {' | '.join(f'loss {level:g}' for level in levels)} | lowest loss |",
        "| --- | --- | ---: |" + " ---: |" * (len(levels) + 1),
    ]
    for name, panel in panels.items():
        ours = cells(panel["adaquant"], measure, levels)
        for method, runs in panel.items():
            found = cells(runs, measure, levels)
            low = f"{min(one.lowest for one in runs):.3g}"
            for word, count in {
                "diverged": sum(bool(one.failure) for one in runs),
                "at a floor": sum(one.at_floor for one in runs),
                "stopped early": sum(not one.ended for one in runs),
            }.items():
                low += f", {count} of {len(runs)} {word}" if count else ""
            shown = [cell(found[level], ours[level]) for level in levels]
            label = f"**{paper.METHODS[method]}**" if method == "adaquant" else paper.METHODS[method]
            rows.append(f"| {TITLES[name]} | {label} | {len(runs)} | {' | '.join(shown)} | {low} |")
    return "\n".join(rows)


def cheapest() -> str:
    """Say whether AdaQuantFL is cheapest, panel by panel."""
    lines = []
    for name, panel in load(SAMPLE).items():
        rivals = ", ".join(paper.METHODS[method] for method in paper.judged(panel)) or "none so far"
        judged = ", ".join(f"{level:g}: {paper.cheapest(panel, level)}" for level in LEVELS[name])
        lines.append(f"- {SAMPLE[name]} (three seeds: {rivals}): {judged}")
    return "\n".join(lines)


def aims() -> str:
    """Say what was aimed at before the runs, met or missed; factors are means over the seeds, and seed by seed."""
    panels = load([*list(SAMPLE)[:2], paper.FULL])
    rows = [f"| aim | {' | '.join(TITLES[name] for name in panels)} |", "| --- |" + " --- |" * len(panels)]
    texts = {
        "fewer bits than every fixed level that was run, to 0.1, 0.05 and 0.02, every seed": [
            verdict(all(paper.cheapest(one, level) == "yes" for level in AIMED)) for one in panels.values()
        ],
        "2 bits never reach any of them": [
            verdict(not any(cell.reached for cell in cells(one["2bit"], "paper_bits", AIMED).values()))
            for one in panels.values()
        ],
    }
    for measure, (word, least) in AIMS.items():
        aim = f"4 bits take at least {least:g} times AdaQuantFL's {word} to {AIM_LEVEL:g}"
        texts[aim] = [factor(one, measure, least) for one in panels.values()]
    return "\n".join([*rows, *(f"| {aim} | {' | '.join(each)} |" for aim, each in texts.items())])


def factor(panel: paper.Panel, measure: str, least: float) -> str:
    theirs, ours = (cells(panel[method], measure, [AIM_LEVEL])[AIM_LEVEL] for method in ("4bit", "adaquant"))
    if theirs.mean is None or ours.mean is None:
        return f"**missed**: AdaQuantFL {ours.missed}, 4 bits {theirs.missed}"
    each = ", ".join(f"{a / b:.2f}" for a, b in zip(theirs.reached, ours.reached, strict=False))
    return f"{verdict(theirs.mean / ours.mean >= least)}: {theirs.mean / ours.mean:.2f} ({each})"


def headlines() -> str:
    """Return the paper's claims about the CNN, judged on the bundled sample."""
    return "\n".join(map(_line, paper.verdicts(PAPER)))


def elsewhere(names: Iterable[str]) -> str:
    """Return the paper's claims, judged in settings that are not its own; other panels have no line."""
    panels = load(name for name in names if name in paper.ELSEWHERE)
    return "\n".join(_line(paper.fewest_bits(panel, *paper.ELSEWHERE[name])) for name, panel in panels.items())


def stalled() -> str:
    """Say what AdaQuantFL that does not lock sends on the whole data set, next to 4 bits."""
    (panel,) = load(WHOLE).values()
    ours, fixed = panel[STALL], panel["4bit"]
    assert [one.seed for one in ours] == [one.seed for one in fixed]
    texts = []
    for level in (0.25, 0.2):
        mine, theirs = (cells(runs, "paper_bits", [level])[level] for runs in (ours, fixed))
        assert mine.mean is not None
        assert theirs.mean is not None
        each = ", ".join(f"{b / a:.2f}" for a, b in zip(mine.reached, theirs.reached, strict=True))
        texts.append(f"{theirs.mean / mine.mean:.2f} times its bits to loss {level:g} ({each})")
    lowest = [
        f"{min(one.lowest for one in runs):.3g} to {max(one.lowest for one in runs):.3g}" for runs in (ours, fixed)
    ]
    plain = min(one.lowest for one in panel["adaquant"])
    passed = []
    for mine_run, theirs_run in zip(ours, fixed, strict=True):
        spent = [one.at(theirs_run.lowest, one.paper_bits) for one in (theirs_run, mine_run)]
        passed.append(f"{spent[0] / spent[1]:.2f}" if spent[0] and spent[1] else "never")
    return (
        f"With `stall = 8` ({paper.seeds(mine)}) AdaQuantFL does not stay at 3 bits: its lowest loss is {lowest[0]}. "
        f"Without it that is {plain:.3g} at best, and with 4 bits {lowest[1]}. At first 4 bits are as cheap: they take "
        f"{texts[0]}. Then they are dearer: {texts[1]}. To reach the lowest loss of 4 bits, 4 bits take "
        f"{', '.join(passed)} times its bits."
    )


def _line(one: paper.Verdict) -> str:
    return f"- **{one.outcome.capitalize()}.** The paper, {one.where}: {one.claim}. Here: {one.here}"


def load(names: Iterable[str]) -> dict[str, dict[str, list[Trace]]]:
    """Return the panels that have AdaQuantFL."""
    return {name: panel for name in names if "adaquant" in (panel := paper.load(PAPER, name))}


def glance() -> str:
    """Return one row per setting and loss: bytes and bits as multiples of AdaQuantFL's."""
    rows = [
        f"| setting | to loss | AdaQuantFL | {' | '.join(paper.METHODS[one] for one in RIVALS)} | fewest bits? |",
        "| --- | ---: | ---: |" + " ---: |" * len(RIVALS) + " --- |",
    ]
    for name, panel in load(GLANCE).items():
        title, levels = GLANCE[name]
        for level in levels:
            shown = [pair(panel, method, level) for method in ("adaquant", *RIVALS)]
            rows.append(f"| {title} | {level:g} | {' | '.join(shown)} | **{paper.cheapest(panel, level)}** |")
    return "\n".join(rows)


def pair(panel: paper.Panel, method: str, level: float) -> str:
    """Return bytes and bits to a loss, or why there are none; with the seeds where they are too few to judge."""
    if method not in panel:
        return "—"
    texts = []
    for measure, unit in (("bytes_up", "MB"), ("paper_bits", "d")):
        found, ours = (cells(panel[one], measure, [level])[level] for one in (method, "adaquant"))
        if found.mean is None:
            texts = [found.missed]
            break
        texts.append(
            f"{found.mean / ours.mean:.2f}x" if ours.mean and method != "adaquant" else f"{_mean(found)} {unit}"
        )
    few = f" ({paper.seeds(found)})" if len(found.values) < paper.ENOUGH_SEEDS else ""
    return ", ".join(texts) + few


def draw(path: Path) -> None:
    """Draw loss against paper bits, a panel per setting, a line for each seed."""
    styles = figures.styles([method_label(method) for method in paper.METHODS])  # as in other figures
    colours = {method: styles[method_label(method)].colour for method in paper.METHODS} | {STALL: "black"}
    figure, axes = plt.subplots(3, 2, figsize=(10, 11.4))
    for axis, (name, panel) in zip(axes.flat, load(FIGURE_PANELS).items(), strict=True):
        for method, runs in panel.items():
            for one in runs:
                width = 2 if method in ("adaquant", STALL) else 1
                _curve(axis, one, colours[method], paper.METHODS[method] if one is runs[0] else None, width)
        quantized = [one for method, runs in panel.items() if method != "fp32" for one in runs]
        # float32's bits would squeeze the other lines: its line leaves the figure
        axis.set_xlim(0, 1.05 * max(one.paper_bits[-1] / one.dimension for one in quantized))
        _finish(axis, GLANCE[name][0])
        axis.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
        axis.minorticks_off()
        axis.set_ylim(0.9 * min(one.lowest for one in quantized), 1.1 * max(one.losses[0] for one in quantized))
    _save(figure, path)


def _curve(axis: Axes, one: Trace, colour: str, label: str | None, width: float = 1.5) -> None:
    spent = [bits / one.dimension for bits in one.paper_bits]
    axis.plot(spent, one.losses, color=colour, lw=width, label=label)
    if one.failure:
        axis.plot(spent[-1], one.losses[-1], "x", color=colour)


def _finish(axis: Axes, title: str) -> None:
    axis.set(yscale="log", ylabel="training loss", xlabel="bits of one client / d (paper's formula)")
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    with plt.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
