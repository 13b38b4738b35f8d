"""How much the settings that the paper leaves open matter: one changed at a time, several seeds of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adaquantfl.errors import ConfigError
from adaquantfl.report import figures, tables
from adaquantfl.runs.config import load_config
from adaquantfl.runs.jobs import Job
from adaquantfl.runs.records import RunRecord, find_runs

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.figure import Figure

NAME = "sensitivity"  # of the preset, whose own values are one of each list
VALUES: dict[str, tuple[Any, ...]] = {
    "s0": (1, 2, 4, 8),
    "scope": ("whole", "tensor", 16384, 1024),
    "loss": ("full", "round"),
    "interval": (4.0, 16.0, 64.0),
    "rounding": ("nearest", "up", "down", "power"),
}
SEEDS = 3
RECORDS = Path("evidence") / "records" / NAME
WORK = Path("runs") / NAME
_FAR_APART = 5  # from here on a linear axis would crowd most settings into a corner

Groups = dict[str, list[RunRecord]]  # the runs of each setting, one a seed


def settings(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each setting by its name: nothing changed, then every value that is not the preset's."""
    base = load_config(NAME, changes)
    changed = [(key, value) for key, values in VALUES.items() for value in values if value != getattr(base, key)]
    return {"preset": {}} | {
        f"{key}-{value:g}" if isinstance(value, float) else f"{key}-{value}": {key: value} for key, value in changed
    }


def jobs(methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """Every setting with the first seed, then with the next: an unfinished experiment has all settings."""
    if methods:
        raise ConfigError(f"reproduce {NAME} changes AdaQuantFL's settings, one at a time: leave --method away.")
    return [
        Job(load_config(NAME, {**changes, **setting, "seed": seed}), work / name / f"seed-{seed}")
        for seed in range(SEEDS)
        for name, setting in settings(changes).items()
    ]


def load(records: Path) -> Groups:
    """The recorded runs by setting, in the order of `settings`."""
    runs = find_runs([records])
    groups = {name: [run for run in runs if run.path.parent.name == name] for name in settings({})}
    return {name: group for name, group in groups.items() if group}


def common_level(groups: Groups) -> float:
    """The lowest loss, to two digits, that every run of every setting reached."""
    return tables.round_up(max(run.lowest() or float("inf") for group in groups.values() for run in group))


def measured(groups: Groups) -> dict[str, dict[str, list[float]]]:
    """What is compared, in units that read well: for each measure the values of every setting, one a seed."""
    level = common_level(groups)
    read: dict[str, Callable[[RunRecord], float]] = {
        f"rounds to loss {level:g}": lambda run: _cost(run, level)[0],
        "paper's bits, a client": lambda run: _cost(run, level)[1],
        "bytes, all clients": lambda run: _cost(run, level)[2],
        "loss at the end": lambda run: run.final("loss") or float("nan"),
    }
    columns = {}
    for name, value in read.items():
        values = {setting: [value(run) for run in group] for setting, group in groups.items()}
        if symbol := {"paper's": "b", "bytes,": "B"}.get(name.split()[0]):
            divisor, unit = tables.si_unit(float(np.median([x for one in values.values() for x in one])), symbol)
            values = {setting: [x / divisor for x in one] for setting, one in values.items()}
            name = f"{name} ({unit})"
        columns[name] = values
    return columns


def table(groups: Groups) -> list[list[str]]:
    """Mean and standard deviation over the seeds, a row for each setting."""
    columns = measured(groups)
    grid = [["Setting", *columns, "s at the end"]]
    for setting, group in groups.items():
        last = sorted({int(run.history[-1]["s"]) for run in group})
        span = str(last[0]) if len(last) == 1 else f"{last[0]} to {last[-1]}"
        grid.append([title(setting), *(tables.spread(values[setting]) for values in columns.values()), span])
    return grid


def title(setting: str) -> str:
    """`s0-4` as a reader knows it: "s0 = 4"."""
    return setting.replace("-", " = ", 1)


def figure(groups: Groups) -> Figure:
    """Each setting's mean with its standard deviation, and a line through the preset's."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    columns = list(measured(groups).items())[1:]  # rounds say the same as bits
    with matplotlib.rc_context(figures.RC):
        picture = Figure(figsize=(11.5, 0.9 + 0.34 * len(groups)), layout="constrained")
        panels = picture.subplots(1, len(columns), sharey=True)
        for axes, (name, values) in zip(panels, columns, strict=True):
            for row, setting in enumerate(groups):
                style = figures.STYLES["AdaQuantFL" if setting == "preset" else "2-bit"]
                mean, std = np.mean(values[setting]), np.std(values[setting], ddof=min(1, len(values[setting]) - 1))
                axes.errorbar(mean, row, xerr=std, fmt=style.marker, color=style.colour, capsize=3)
                if setting == "preset":
                    axes.axvline(float(mean), color=style.colour, linewidth=1, alpha=0.5)
            axes.set_xlabel(name)
            every = [x for one in values.values() for x in one]
            if max(every) > _FAR_APART * min(every):
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_formatter(NullFormatter())
        panels[0].set_yticks(range(len(groups)), [title(setting) for setting in groups])
        panels[0].invert_yaxis()
    return picture


def _cost(run: RunRecord, level: float) -> tuple[int, int, int]:
    hit = run.bits_to_loss(level)
    assert hit is not None  # a common level is one that all reached
    return hit
