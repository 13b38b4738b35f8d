"""Write the figure and tables of docs/performance.md from the records in evidence/records/benchmarks.

python evidence/pages/scale_page.py

Every number of the page is computed here from scale.json, codec.json, memory.json and real_updates.json.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from adaquantfl.report.figures import RC
from adaquantfl.report.tables import amount, markdown, significant
from evidence.pages.marked import ROOT, write

RECORDS = ROOT / "evidence" / "records" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"
ROUND = 600.0  # seconds that a deployment's round may take
PARAMETERS, MILLION = 100_000_000, 1_000_000
MOST = 512  # clients that were measured together
NAMES = {"auto": "AdaQuantFL's frames, s = 3", "fixed": "the paper's code, s = 3", "float32": "float32"}
COLOURS = ("#0072b2", "#009e73", "#d55e00", "#7a4fbf")
MARKS = ("s", "^", "o", "D")
LOOKS = {"auto": "-", "fixed": (0, (5, 2)), "float32": (0, (1.2, 1.6))}


def read(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Line:
    """Least squares of the relative error: fixed + slope x."""

    fixed: float
    slope: float
    worst: float  # largest relative distance of a measurement from it

    @staticmethod
    def through(x: list[float], y: list[float]) -> Line:
        xs, ys = np.array(x, dtype=float), np.array(y, dtype=float)
        slope, fixed = np.polyfit(xs, ys, 1, w=1 / ys)
        return Line(float(fixed), float(slope), float(np.max(np.abs(fixed + slope * xs - ys) / ys)))


def measured(codec: str, d: int, clients: int, rows: str = "by_size") -> dict[str, Any]:
    return next(r for r in read("scale")[rows] if (r["codec"], r["d"], r["clients"]) == (codec, d, clients))


def by_nonzero() -> Line:
    rows = read("scale")["by_density"]
    return Line.through([r["nonzeros"] for r in rows], [r["cpu_seconds"] for r in rows])


def codecs() -> str:
    """Decode and add at s = 3 and the middle dimension, one core, against the aim of 1 GB/s."""
    grid = [["decode + add, s = 3, d = 11.2 M, one core", "GB/s of float32", "aim", ""]]
    for row in read("codec")["rows"]:
        if (row["s"], row["threads"], row["d"]) == (3, 1, 11_181_642) and row["codec"] in ("fixed", "sparse", "dense"):
            speed = 4 * row["d"] / row["add_seconds"] / 1e9
            grid.append([f"`{row['codec']}`", significant(speed), "≥ 1", "met" if speed >= 1 else "**missed**"])
    return markdown(grid)


def densities() -> str:
    grid = [["non-zeros", "of all", "bytes", "CPU ms", "ns per non-zero", "ns per byte"]]
    for row in read("scale")["by_density"]:
        seconds = row["cpu_seconds"]
        each = [significant(1e9 * seconds / row[key]) for key in ("nonzeros", "bytes")]
        share = f"{row['nonzeros'] / row['d']:.2%}"
        grid.append([f"{row['nonzeros']:,}", share, f"{row['bytes']:,}", significant(1e3 * seconds), *each])
    line = by_nonzero()
    dense = [r for r in read("scale")["by_density"] if r["nonzeros"] >= r["d"] // 1000]
    each = sorted(1e9 * row["cpu_seconds"] / row["nonzeros"] for row in dense)
    more, longer = (dense[-1][key] / dense[0][key] for key in ("nonzeros", "cpu_seconds"))
    return (
        f"{markdown(grid)}\n\nThe time is only roughly linear in the non-zeros. From 0.1 % on, a non-zero took "
        f"{each[0]:.0f} to {each[-1]:.0f} ns, and {more:.0f} times as many took {longer:.0f} times as long. The best "
        f"straight line, {1e6 * line.fixed:.0f} µs per frame and {1e9 * line.slope:.0f} ns per non-zero, misses "
        f"measurements by up to {line.worst:.0%}."
    )


def sizes() -> str:
    rows = read("scale")["by_size"]
    clients = sorted({row["clients"] for row in rows})
    grid = [["d", "frames", "bytes per frame", *(f"n = {n}" for n in clients), "ns per byte, n = 512"]]
    for codec, d in dict.fromkeys((row["codec"], row["d"]) for row in rows):
        mine = {row["clients"]: row for row in rows if (row["codec"], row["d"]) == (codec, d)}
        last = mine[clients[-1]]
        each = [significant(1e3 * mine[n]["cpu_seconds"] / n) for n in clients]
        per_byte = significant(1e9 * last["cpu_seconds"] / last["bytes"])
        grid.append(
            [f"{d / 1e6:.3g} M", NAMES[codec], amount(round(last["bytes"] / clients[-1]), "B"), *each, per_byte]
        )
    return f"{markdown(grid)}{second_time()}"


def second_time() -> str:
    """Where the largest dimension was measured twice, both results."""
    if "superseded" not in read("scale"):
        return ""
    before, now = (measured("auto", PARAMETERS, MOST, rows)["cpu_seconds"] for rows in ("superseded", "by_size"))
    cores = MILLION / MOST * before / ROUND
    return (
        f"\n\nThe row of {PARAMETERS / 1e6:.0f} M is of a second measurement, with more repetitions. In the first, "
        f"n = {MOST} took {before:.2f} CPU seconds instead of {now:.2f}; why was not looked into, and by the first, "
        f"the cores that a million clients need below would be {cores:.2g}. The record has both."
    )


def federation() -> str:
    found = read("scale")["federation"]
    memory, settings, cpu = found["memory"], found["settings"], found["cpu_seconds"]
    grid = [["after round", *(str(look["round"]) for look in memory)]]
    for key, name in (("server_mb", "server, MB"), ("workers_mb", "both workers, MB")):
        grid.append([name, *(f"{look[key]:.0f}" for look in memory)])
    growth = {key: memory[-1][key] / memory[1][key] - 1 for key in ("server_mb", "workers_mb")}
    seconds, total = found["seconds"], cpu["server"] + cpu["workers"]
    other = seconds["rounds"] - seconds["clients_per_worker"]
    by_cpu, by_clock = found["bookkeeping_share_of_cpu"], found["bookkeeping_share_of_time"]
    return (
        f"{settings['rounds']} rounds of {settings['clients_per_round']} of {settings['clients']:,} clients "
        f"(d = {found['d']:,}) took {amount(seconds['rounds'], 's')} on {settings['workers']} workers, to a test "
        f"accuracy of {found['final_accuracy']:.1%}. The aim for bookkeeping is below 10 % of the time:\n\n"
        f"- in CPU time, the server's process took {cpu['server']:.1f} of {total:.1f} s, {by_cpu:.1%}: "
        f"{verdict(by_cpu)};\n"
        f"- by the clock, {other:.0f} of {seconds['rounds']:.0f} s were not a worker's training or encoding, "
        f"{by_clock:.1%}: {verdict(by_clock)}. The server computed for {cpu['server']:.1f} s, partly while workers "
        "trained: three processes share two cores, and a worker waits while the server has its core.\n\n"
        f"{markdown(grid)}\n\nFrom round {memory[1]['round']} to {memory[-1]['round']} memory changed by "
        f"{growth['server_mb']:+.1%} at the server and {growth['workers_mb']:+.1%} in the workers."
    )


def verdict(share: float) -> str:
    return "met" if share < 0.10 else "**missed**"


@dataclass(frozen=True)
class Need:
    """What a round of so many clients asks of the server."""

    bytes: float
    cores: float

    @property
    def gbit(self) -> float:
        return 8 * self.bytes / ROUND / 1e9


def need(codec: str, clients: int) -> Need:
    """At PARAMETERS elements: measured there for the small frames, by the element for the others."""
    largest = max(r["d"] for r in read("scale")["by_size"] if r["codec"] == codec)
    row, scale = measured(codec, largest, MOST), clients / MOST * PARAMETERS / largest
    return Need(scale * row["bytes"], scale * row["cpu_seconds"] / ROUND)


def deployment() -> str:
    """Uplink of a round in which so many clients of a model of 100 M parameters take part."""
    grid = [["clients in a round", "frames", "bytes in", "Gbit/s in", "cores for decode + add"]]
    for clients in (10_000, MILLION):
        for codec in NAMES:
            asked = need(codec, clients)
            cores = significant(asked.cores, 2) if asked.cores >= 0.01 else "below 0.01"
            grid.append([f"{clients:,}", NAMES[codec], amount(asked.bytes, "B"), significant(asked.gbit), cores])
    return markdown(grid)


def resources() -> str:
    """What else a million clients ask for: cores, memory, aggregators in between, and the downlink."""
    frame, whole = need("auto", MILLION).bytes / MILLION, 4 * PARAMETERS
    even = whole / frame
    aggregators = -(-MILLION // round(even))
    root = aggregators * need("float32", 1).cores * ROUND
    peak = max(row["peak_over_4d"] for row in read("memory")["rows"])
    sent = read("scale")["broadcast"]
    lossy = sent["bytes"] / sent["d"] * PARAMETERS
    return f"""\
- **Cores.** {significant(need("auto", MILLION).cores, 2)} cores check, decode and add a million frames in a round of
  {ROUND / 60:.0f} minutes. The cost per client is that of {MOST} clients measured together. Connections and TLS come on
  top and were not measured.
- **Memory.** A sum takes {peak:.1f} vectors of d float32, {amount(peak * whole, "B")}, for any number of clients.
- **Aggregators in between.** One that adds up its clients and passes the sum on in float32 sends
  {amount(whole, "B")}, as much as {even:,.0f} frames. With fewer clients than that it saves no bandwidth, only
  connections. With as many, a million clients need {aggregators} aggregators, and the root takes
  {amount(aggregators * whole, "B")} and {significant(root)} CPU seconds per round. Sums of sums round differently from
  one sum in client order. To repeat a run bit for bit, the hierarchy must be the same.
- **The downlink.** The model takes {amount(whole, "B")} per client, {amount(MILLION * whole, "B")} for a million.
  A round's frames are {amount(MILLION * frame, "B")}. So passing them on (`downlink = "exact"`) pays only below
  {even:,.0f} clients per round. One lossy frame for all takes {amount(lossy, "B")} on a Gaussian change
  ({8 * sent["bytes"] / sent["d"]:.2f} bits per element at s = {sent["s"]}), {whole / lossy:.1f}x less than the model.
  It is the same for all clients, so caches near them can serve it.
{carries()}"""


def carries() -> str:
    """How near the measured frames are to those of a real model."""
    real = next(r for r in read("real_updates")["rows"] if (r["scope"], r["s"], r["rounds"]) == ("tensor", 3, 20))
    like = next(r for r in read("codec")["rows"] if (r["codec"], r["s"], r["threads"]) == ("sparse", 3, 1))
    size = real["bytes"]["auto"]
    return f"""\
- **How general this is.** Frames here are of Gaussian vectors with one norm. The CNN's real updates with a norm for
  each tensor took {size:,} bytes at s = 3, {8 * size / like["d"]:.4f} bits per element. The Gaussian vector of that
  size takes {like["bits_per_element"]:.4f}. A norm that more elements share leaves fewer elements non-zero. So a model
  of many small tensors has larger frames than one of a few large ones."""


def blocks() -> dict[str, str]:
    return {
        "codecs": codecs(),
        "densities": densities(),
        "sizes": sizes(),
        "federation": federation(),
        "deployment": deployment(),
        "resources": resources(),
    }


def figure() -> Figure:
    rows = read("scale")["by_size"]
    with rc_context(RC):
        picture = Figure(figsize=(12, 4.6), layout="constrained")
        left, right = picture.subplots(1, 2)
        for d, colour, mark in zip(sorted({row["d"] for row in rows}), COLOURS, MARKS, strict=True):
            for codec, dash in LOOKS.items():
                mine = [row for row in rows if (row["codec"], row["d"]) == (codec, d)]
                each = [1e3 * row["cpu_seconds"] / row["clients"] for row in mine]
                label = f"d = {d / 1e6:.3g} M" if codec == "auto" else None
                left.loglog([row["clients"] for row in mine], each, ls=dash, marker=mark, color=colour, label=label)
        for codec, dash in LOOKS.items():
            left.plot([], [], ls=dash, color="#57606a", label=NAMES[codec])
        left.set(xlabel="clients in a round, n", ylabel="CPU ms per client", title="Check, decode and add")
        left.set_xticks([8, 32, 128, 512], ["8", "32", "128", "512"])
        left.minorticks_off()
        picture.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        found, line = read("scale")["by_density"], by_nonzero()
        x = np.array([row["nonzeros"] for row in found], dtype=float)
        fine = np.geomspace(x[0], x[-1], 100)
        right.loglog(x, [1e3 * row["cpu_seconds"] for row in found], "o", color="#d55e00")
        right.loglog(fine, 1e3 * (line.fixed + line.slope * fine), color="#57606a", lw=1, zorder=1)
        right.set(xlabel="non-zeros in a frame", ylabel="CPU ms per frame", title="Sparse frames, d = 11.2 M")
        right.annotate(
            f"line: {1e6 * line.fixed:.0f} µs + {1e9 * line.slope:.0f} ns per non-zero",
            (0.05, 0.9),
            xycoords="axes fraction",
        )
    return picture


def main() -> None:
    write(PAGE, blocks())
    figure().savefig(ROOT / "docs" / "figures" / "scale.png", dpi=110)


if __name__ == "__main__":
    main()
