"""The tables and the figure of docs/performance.md, from records/benchmarks (`make bench`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from adaquantfl.report.figures import RC
from adaquantfl.report.tables import amount, markdown, significant
from evidence.pages import marked
from evidence.pages.marked import verdict

ROUND = 600.0  # seconds that a deployment's round may take
PARAMETERS, MILLION = 100_000_000, 1_000_000
MIDDLE = 11_181_642  # the dimension that the targets are set for
MOST = 512  # clients that were measured together
NAMES = {"auto": "AdaQuantFL's frames, s = 3", "fixed": "the paper's code, s = 3", "float32": "float32"}
COLOURS = ("#0072b2", "#009e73", "#d55e00", "#7a4fbf")
MARKS = ("s", "^", "o", "D")
LOOKS = {"auto": "-", "fixed": (0, (5, 2)), "float32": (0, (1.2, 1.6))}


def read(name: str) -> dict[str, Any]:
    return marked.read(f"benchmarks/{name}")


def targets() -> str:
    """Return, of the figures that differ only in s, d or the entropy, the one that is furthest from its target."""
    families: dict[str, list[dict[str, Any]]] = {}
    for row in read("targets")["rows"]:
        family = re.sub(r"[\d.]+ bits per element|[sd] = [\d,]+", "", row["name"])
        families.setdefault(family, []).append(row)
    grid = [["figure furthest from its target", "target", "here", "met"]]
    for rows in families.values():
        row = min(rows, key=lambda one: one["share"])
        met = sum(one["share"] >= 1 for one in rows)
        sign = "≥" if row["least"] else "≤"
        here = f"{row['measured']:,.3g}" if row["measured"] < 1000 else f"{row['measured']:,.0f}"
        grid.append([row["name"], f"{sign} {row['target']:,g} {row['unit']}", here, f"{met} of {len(rows)}"])
    return markdown(grid)


def others() -> str:
    """Return the targets that other benchmarks measure."""
    rows, seconds, round_ = read("codec")["rows"], read("coldstart")["seconds"], read("round")
    grid = [["figure", "target", "here", ""]]
    for phase, key, aim in (("compress", "compress_seconds", 8), ("decode + add", "add_seconds", 25)):
        plain = [row for row in rows if (row["codec"], row["threads"]) == ("numpy", 1)]
        times = min(row[key] / speed_of(rows, "fixed", row["s"], 1, row["d"])[key] for row in plain)
        name = f"`fixed` {phase} against plain NumPy, lowest over d and s, one core"
        grid.append([name, f"≥ {aim}x", f"{times:.0f}x", verdict(times >= aim)])
    for name, key, most in (
        ("`import adaquantfl`", "import_adaquantfl", 0.3),
        ("first frame of a process, seconds of CPU", "first_frame_auto", 0.5),
    ):
        grid.append([name, f"≤ {most} s", f"{seconds[key]:.2f} s", verdict(seconds[key] <= most)])
    share, times = round_["share_not_local_sgd"], round_["plain_loop_over_our_round"]
    grid.append(["CNN round: share that is not local SGD", "≤ 5 %", f"{share:.1%}", verdict(share <= 0.05)])
    grid.append(["CNN round against a plain PyTorch loop", "≥ 1x", f"{times:.2f}x", verdict(times >= 1)])
    peak = max(row["peak_over_4d"] for row in read("memory")["rows"] if row["clients"] == 64)
    grid.append(["server's peak memory, 64 clients, in vectors of d float32", "O(d)", f"{peak:.1f}", "met"])
    return markdown(grid)


def speed_of(rows: list[dict[str, Any]], codec: str, s: int, threads: int, d: int) -> dict[str, Any]:
    return next(r for r in rows if (r["codec"], r["s"], r["threads"], r["d"]) == (codec, s, threads, d))


def speeds() -> str:
    """Return the share of copy speed for each codec and s at the middle dimension, on one core and on two."""
    rows = read("codec")["rows"]
    grid = [
        ["s", "codec", "bits per element", "compress, GB/s", "of copy", "2 threads", "decode + add, GB/s", "of copy",
         "2 threads"]
    ]  # fmt: skip
    for row in rows:
        if row["codec"] not in ("fixed", "sparse", "dense") or (row["threads"], row["d"]) != (1, MIDDLE):
            continue
        both = speed_of(rows, row["codec"], row["s"], 2, MIDDLE)
        line = [str(row["s"]), row["codec"], f"{row['bits_per_element']:.4f}"]
        for phase in ("compress", "add"):
            line.append(f"{4 * MIDDLE / 1e9 / row[f'{phase}_seconds']:.1f}")
            line.append(f"{row[f'{phase}_share_of_copy']:.2f}")
            line.append(f"{both['copy_seconds'] / both[f'{phase}_seconds']:.2f}")
        grid.append(line)
    return markdown(grid)


def bodies() -> str:
    """Return the size of a body over the entropy of its levels."""
    grid = [["distribution", "s", "non-zero", "sparse", "dense", "auto"]]
    for row in read("sizes")["rows"]:
        if row["d"] == MIDDLE:
            over = [f"{row['over_entropy'][codec]:.4f}" for codec in ("sparse", "dense", "auto")]
            grid.append([row["kind"], str(row["s"]), f"{row['nonzero']:.3%}", *over])
    return markdown(grid)


def updates() -> str:
    """Return the frames of real updates, next to the paper's formula."""
    grid = [["after round", "scope", "s", "non-zero", "entropy, bytes", "auto, bytes", "auto / entropy", "C_s / frame"]]
    for row in read("real_updates")["rows"]:
        first = [str(row["rounds"]), row["scope"], str(row["s"]), f"{row['nonzero']:.3%}"]
        sizes = [f"{row['entropy_bytes']:,.0f}", f"{row['bytes']['auto']:,}", f"{row['over_entropy']['auto']:.3f}"]
        grid.append([*first, *sizes, f"{row['paper_over_frame']:.0f}x"])
    return markdown(grid)


def one_round() -> str:
    """Return where the time of a round goes."""
    found = read("round")
    return (
        f"A round took {found['round_seconds']:.2f} s, of which local SGD {found['local_sgd_seconds']:.2f} s. Encoding "
        f"took {1000 * found['encode_seconds_per_worker']:.0f} ms per worker, decoding and adding "
        f"{1000 * found['aggregate_seconds']:.0f} ms. A plain PyTorch loop over the same batches took "
        f"{min(found['plain_loop_seconds_by_threads'].values()):.2f} s at its best."
    )


def load() -> str:
    """Return the memory of a server with many clients, and of either end with a large model; misses are named."""
    record, texts = read("load"), []
    for one in record["loads"]:
        most = max(one["rounds"], key=lambda row: row["above the replies"])["above the replies"]
        met = "met" if most <= one["allowed"] else "**missed**"
        texts.append(
            f"{most / 1e6:.1f} MB with {one['clients']:,} clients and d = {one['dimension']:,} "
            f"(aim: 4 models and 2 kB per client, {one['allowed'] / 1e6:.1f} MB: {met})"
        )
    ends = record["ends"]
    most_of = {end: max(ends[way][end] for way in ("sending", "keeping")) for end in ("server", "client")}
    return (
        f"`aq.Server` with the default rule needs, in addition to the replies' bytes, {', and '.join(texts)}. With d = "
        f"{ends['dimension']:,} a round takes the server {most_of['server']:.1f} models at most, and a client "
        f"{most_of['client']:.1f} (aim: {ends['allowed']})."
    )


def machines() -> str:
    """Say which records are from which processor."""
    names = ("targets", "codec", "coldstart", "sizes", "real_updates", "round", "memory", "scale")
    by_cpu: dict[str, list[str]] = {}
    for name in names:
        by_cpu.setdefault(read(name)["machine"]["cpu"], []).append(f"`{name}`")
    return "\n".join(f"- {cpu}: {', '.join(names)}" for cpu, names in by_cpu.items())


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


def measured(codec: str, d: int, clients: int) -> dict[str, Any]:
    return next(r for r in read("scale")["by_size"] if (r["codec"], r["d"], r["clients"]) == (codec, d, clients))


def by_nonzero() -> Line:
    rows = read("scale")["by_density"]
    return Line.through([r["nonzeros"] for r in rows], [r["cpu_seconds"] for r in rows])


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
    return markdown(grid)


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
        f"(d = {found['d']:,}) took {significant(seconds['rounds'])} s on {settings['workers']} workers, to a test "
        f"accuracy of {found['final_accuracy']:.1%}. The aim for bookkeeping is below 10 % of the time:\n\n"
        f"- in CPU time, the server's process took {cpu['server']:.1f} of {total:.1f} s, {by_cpu:.1%}: "
        f"{verdict(by_cpu < 0.1)};\n"
        f"- by the clock, {other:.0f} of {seconds['rounds']:.0f} s were not a worker's training or encoding, "
        f"{by_clock:.1%}: {verdict(by_clock < 0.1)}. The server computed for {cpu['server']:.1f} s, partly while "
        "workers trained: three processes share two cores, and a worker waits while the server has its core.\n\n"
        f"{markdown(grid)}\n\nFrom round {memory[1]['round']} to {memory[-1]['round']} memory changed by "
        f"{growth['server_mb']:+.1%} at the server and {growth['workers_mb']:+.1%} in the workers."
    )


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
  {even:,.0f} clients per round.
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


def draw(path: Path) -> None:
    """Draw the server's time per client against clients, and per frame against its non-zeros."""
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
        picture.savefig(path, dpi=110)
