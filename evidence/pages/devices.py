"""The table of docs/how-to/fifty-devices.md, from records/devices.json (`python -m evidence.studies.devices`)."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from adaquantfl.report.tables import amount, markdown
from evidence.pages.marked import read

RATES = {"1mbit": 1e6}  # tc's word, and bits per second
TITLES = {"auto": "default (`auto`)", "fp32": "float32"}


def table() -> str:
    """Return time, bytes and accuracy of both runs, and what became of the device that was killed."""
    record = read("devices")
    runs: dict[str, dict[str, Any]] = record["runs"]
    grid = [["", "time", "a round, median", "on the links, up", "down", "each link busy", "test accuracy"]]
    for name, run in runs.items():
        sizes = [amount(run["link_bytes"][way], "B") for way in ("up", "down")]
        bits = 8 * sum(run["link_bytes"].values()) / record["devices"]
        busy = f"{bits / RATES[record['rate']]:.0f} s"
        accuracy = f"{run['rounds'][-1]['accuracy']:.1%}"
        grid.append(
            [TITLES[name], f"{run['seconds'] / 60:.1f} min", f"{median(pace(run)):.0f} s", *sizes, busy, accuracy]
        )
    return f"{markdown(grid)}\n\n{' '.join(map(fate, runs))}\n\n{load(record)}"


def pace(run: dict[str, Any]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(run["round_starts"])]


def fate(name: str) -> str:
    """Say how long the round of the kill took, and who took part."""
    run = read("devices")["runs"][name]
    killed = next(place for place, start in enumerate(run["round_starts"]) if start > run["faults"]["killed"]) - 1
    least, last = min(run["clients"]), run["clients"][-1]
    return (
        f"With {TITLES[name]} the round in which the device was killed took {pace(run)[killed]:.0f} s; at least "
        f"{least} devices took part in each round, and {last} in the last one."
    )


def load(record: dict[str, Any]) -> str:
    """Say what one device sends and receives in a round."""
    parts = []
    for name, run in record["runs"].items():
        up, down = (median(one[f"kB_{way}"] for one in run["rounds"][1:]) / record["devices"] for way in ("up", "down"))
        parts.append(f"{TITLES[name]} {up:,.1f} kB up and {down:,.1f} kB down")
    return f"A message in a later round, per device: {'; '.join(parts)}."
