"""Write docs/performance.md from the records of `make bench` in evidence/records/benchmarks.

python evidence/pages/performance_tables.py
"""

from __future__ import annotations

import json
import re
from typing import Any

from evidence.pages import marked
from evidence.pages.marked import ROOT

RECORDS = ROOT / "evidence" / "records" / "benchmarks"
MIDDLE = 11_181_642  # the dimension that the targets are set for


def read(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text())


def table(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *rows])


def speed_of(rows: list[dict], codec: str, s: int, threads: int, d: int = MIDDLE) -> dict[str, Any]:
    return next(r for r in rows if (r["codec"], r["s"], r["threads"], r["d"]) == (codec, s, threads, d))


def speeds(rows: list[dict]) -> str:
    """Share of copy speed, for each codec and s, on one core and on two."""
    ours = [r for r in rows if r["codec"] in ("fixed", "sparse", "dense") and r["threads"] == 1]
    lines = []
    for row in ours:
        both = speed_of(rows, row["codec"], row["s"], 2, row["d"])
        size = 4 * row["d"] / 1e9
        lines.append(
            [
                f"{row['d'] / 1e6:.1f} M",
                str(row["s"]),
                row["codec"],
                f"{row['bits_per_element']:.4f}",
                f"{size / row['compress_seconds']:.1f}",
                f"{row['compress_share_of_copy']:.2f}",
                f"{both['copy_seconds'] / both['compress_seconds']:.2f}",
                f"{size / row['add_seconds']:.1f}",
                f"{row['add_share_of_copy']:.2f}",
                f"{both['copy_seconds'] / both['add_seconds']:.2f}",
            ]
        )
    header = ["d", "s", "codec", "bits per element", "compress, GB/s", "of copy", "2 threads"]
    return table([*header, "decode + add, GB/s", "of copy", "2 threads"], lines)


def against_plain(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        if row["codec"] == "fixed" and row["threads"] == 1:
            others = {r["codec"]: r for r in rows if (r["d"], r["s"], r["threads"]) == (row["d"], row["s"], 1)}
            if "numpy" in others:
                cells = [f"{row['d'] / 1e6:.1f} M", str(row["s"])]
                for name in ("numpy", "torch"):
                    for phase in ("compress_seconds", "add_seconds"):
                        cells.append(f"{others[name][phase] / row[phase]:.0f}x")
                lines.append(cells)
    return table(
        ["d", "s", "compress: NumPy", "decode + add: NumPy", "compress: PyTorch", "decode + add: PyTorch"], lines
    )


def targets(rows: list[dict], start: dict, round_: dict, memory: dict) -> str:
    def verdict(value: float, least: float) -> str:
        return "met" if value >= least else f"**missed** ({value / least:.0%} of it)"

    lines = []
    plain = [
        (phase, min(r[key] / speed_of(rows, "fixed", r["s"], 1, r["d"])[key] for r in rows
                    if r["codec"] == "numpy" and r["threads"] == 1), aim)
        for phase, key, aim in (("compress", "compress_seconds", 8), ("decode + add", "add_seconds", 25))
    ]  # fmt: skip
    lines += [
        [
            f"`fixed` {what} against plain NumPy, lowest over d and s, one core",
            f"≥ {aim}x",
            f"{value:.0f}x",
            verdict(value, aim),
        ]
        for what, value, aim in plain
    ]
    seconds = start["seconds"]
    for what, key, most in (
        ("`import adaquantfl`", "import_adaquantfl", 0.3),
        ("first frame, warm cache", "first_frame_auto", 1.5),
    ):
        lines.append([what, f"≤ {most} s", f"{seconds[key]:.2f} s", "met" if seconds[key] <= most else "**missed**"])
    other = round_["share_not_local_sgd"]
    lines.append(
        ["CNN round: share that is not local SGD", "≤ 5 %", f"{other:.1%}", "met" if other <= 0.05 else "**missed**"]
    )
    plain_loop = round_["plain_loop_over_our_round"]
    lines.append(
        [
            "CNN round against a plain PyTorch loop, same batches and cores",
            "≥ 1x",
            f"{plain_loop:.2f}x",
            verdict(plain_loop, 1),
        ]
    )
    peak = max(row["peak_over_4d"] for row in memory["rows"] if row["clients"] == 64)
    lines.append(["server's peak memory, 64 clients, in vectors of d float32", "O(d)", f"{peak:.1f}", "met"])
    return table(["figure", "target", "here", ""], lines)


def worst(rows: list[dict]) -> str:
    """Of the figures that differ only in s, d or the entropy, the one that is furthest from its target."""
    families: dict[str, list[dict]] = {}
    for row in rows:
        family = re.sub(r"[\d.]+ bits per element|[sd] = [\d,]+", "", row["name"])
        families.setdefault(family, []).append(row)
    lines = []
    for family in families.values():
        row = min(family, key=lambda row: row["share"])
        met = sum(row["share"] >= 1 for row in family)
        sign, here = (
            "≥" if row["least"] else "≤",
            f"{row['measured']:,.3g}" if row["measured"] < 1000 else f"{row['measured']:,.0f}",
        )
        lines.append([row["name"], f"{sign} {row['target']:,g} {row['unit']}", here, f"{met} of {len(family)}"])
    return table(["figure furthest from its target", "target", "here", "met"], lines)


def misses(rows: list[dict], kernels: dict) -> str:
    """What limits the figures that miss their targets."""
    copy = next(row["measured"] for row in rows if row["name"] == "copy, 2 threads")
    loops = kernels["compiled_for"]["this processor"]
    least = min(row["wide_decode"] for row in loops if not row["pairs"])
    narrow = min(row["narrow_encode"] for row in loops)
    return f"""What limits the misses: from 4 bits per element on, `dense` looks up 64 bits for each level. That loop alone reads
{least:.1f} G symbols/s (`benchmarks/dense.py`); adding and the rest share what is left. A short vector with s = 255 gets a
dense frame with a table of its own. With 1,000 elements, the calls of Python around ten kernels take most of the time.
With 100,000, it is the coder with four states. It writes {narrow:.1f} G symbols/s; the one with 64 states is faster, but
its frame would be larger by more than 0.5 %. Two threads share the memory: copy itself
is {copy:.1f} times as fast with two. Other work shared both cores. A frame of a few kilobytes is read by one thread."""


def sizes(rows: list[dict]) -> str:
    lines = [
        [r["kind"], f"{r['d'] / 1e6:.1f} M", str(r["s"]), f"{r['nonzero']:.3%}"]
        + [f"{r['over_entropy'][codec]:.4f}" for codec in ("sparse", "dense", "auto")]
        for r in rows
    ]
    return table(["distribution", "d", "s", "non-zero", "sparse", "dense", "auto"], lines)


def real_updates(rows: list[dict]) -> str:
    lines = [
        [
            str(r["rounds"]),
            r["scope"],
            str(r["s"]),
            f"{r['nonzero']:.3%}",
            f"{r['entropy_bytes']:,.0f}",
            f"{r['bytes']['auto']:,}",
            *(f"{r['over_entropy'][codec]:.3f}" for codec in ("sparse", "dense", "auto")),
            f"{r['paper_over_frame']:.0f}x",
        ]
        for r in rows
    ]
    header = ["after round", "scope", "s", "non-zero", "entropy, bytes", "auto, bytes"]
    return table([*header, "sparse / entropy", "dense / entropy", "auto / entropy", "C_s / frame"], lines)


def machines() -> str:
    """Which records are from which processor."""
    by_cpu: dict[str, list[str]] = {}
    for name in (
        "targets",
        "codec",
        "dense",
        "coldstart",
        "compile",
        "sizes",
        "real_updates",
        "round",
        "memory",
        "scale",
    ):
        by_cpu.setdefault(read(name)["machine"]["cpu"], []).append(f"`{name}`")
    return "\n".join(f"- {cpu}: {', '.join(names)}" for cpu, names in by_cpu.items())


def main() -> None:
    codec, start, round_, memory = read("codec"), read("coldstart"), read("round"), read("memory")
    speed = read("targets")
    page = f"""# Speed, size and memory

Made by `make bench` and `evidence/pages/performance_tables.py` from the records in `evidence/records/benchmarks`, on machines with 2 cores.
Speeds are shares of `np.copyto` of the same float32 vector in the same run, the fastest of several. The machines are shared
with other work, so only ratios within one run can be compared. `adaquantfl bench` measures yours. The processors:

{machines()}

## Targets

`benchmarks/targets.py`. On "{speed["machine"]["cpu"]}", one thread except where it says 2:

{worst(speed["rows"])}

{misses(speed["rows"], read("dense"))}

Others:

{targets(codec["rows"], start, round_, memory)}

## Codecs

The vector is Gaussian and has one norm; the extra `speed` is installed. "Compress" is the norm, quantizing, encoding and
the checksum. "Decode + add" is the checksum, the checks, decoding and adding. GB/s are of float32 in or out on one core;
"2 threads" is the share of copy with both cores. Few levels are non-zero at these dimensions until s is in the hundreds,
which is why `sparse` is so small.

{speeds(codec["rows"])}

How much faster `fixed` is than the same arithmetic written plainly (NumPy's packbits; PyTorch), on one core:

{against_plain(codec["rows"])}

## Sizes

`benchmarks/sizes.py`: the body over the entropy of the signed levels, one norm. Targets: `sparse` at most 1.01 below 1 %
non-zero and 1.03 up to 10 %, `dense` at most 1.01 above that, `auto` within 1 % of the best.

{sizes(read("sizes")["rows"])}

## Real updates

Frames of real updates of the CNN (`benchmarks/real_updates.py`): sizes of the body against the entropy of the levels
over the whole vector. Below 1, following the density along the vector beats that entropy; layers differ. The last
column is the paper's C_s over the whole frame that `auto` writes.

{real_updates(read("real_updates")["rows"])}

## A real run

`adaquantfl run fmnist-cnn-iid --set rounds=60` (AdaQuantFL, s0 = 2, full Fashion-MNIST, 8 clients; record in
`evidence/records/wire`): {real_run()}

## A round

`benchmarks/round.py`: the CNN, 8 clients, tau = 10, batch 64, on {round_["workers"]} workers of one thread. A round took
{round_["round_seconds"]:.2f} s, of which local SGD {round_["local_sgd_seconds"]:.2f} s; encoding
{1000 * round_["encode_seconds_per_worker"]:.0f} ms per worker, decoding and adding {1000 * round_["aggregate_seconds"]:.0f} ms.
A plain PyTorch loop over the same batches took {min(round_["plain_loop_seconds_by_threads"].values()):.2f} s at its best.

## Cold start

{table(["", "seconds"], [[name.replace("_", " "), f"{value:.2f}"] for name, value in start["seconds"].items()])}

### From an empty cache

{compiling(read("compile"))}

## Memory of the server

`benchmarks/memory.py`: peak of the accumulator, in vectors of d float32 (the sum and its copy are 2), d = {memory["d"]:,}.

{table(["s", "codec", "1 client", "8 clients", "64 clients"], memory_rows(memory["rows"]))}
"""
    marked.write(ROOT / "docs" / "performance.md", {"performance": page.strip()})
    print(targets(codec["rows"], start, round_, memory))


def compiling(record: dict[str, Any]) -> str:
    """What the kernels of a first frame take to compile."""
    lines = [
        [row["quantizer"], row["codec"], str(row["s"]), f"{row['compress']:.1f}", f"{row['add']:.1f}"]
        for row in record["rows"]
    ]
    header = ["quantizer", "codec", "s", "compress", "decode + add"]
    times = [row[key] for row in record["rows"] for key in ("compress", "add")]
    met = sum(time <= 2 for time in times)
    return f"""`benchmarks/compile.py`: CPU seconds of a process that sends or receives one frame of 100,000 elements. No kernel was
compiled before. The machine was "{record["machine"]["cpu"]}", shared with other work. {record["numba"]:.1f} s of each are
Numba's: importing it and compiling an empty function. The target is 2 s: {met} of
{len(times)} figures meet it, and the largest is {max(times):.1f} s. Frames of `dense`, which `auto` often writes, take
longest: kernels choose, write and read their table. A machine pays it once.

{table(header, lines)}"""


def real_run() -> str:
    """The bytes of a whole training against the paper's count; the target is a hundredth."""
    summary = json.loads((ROOT / "evidence" / "records" / "wire" / "summary.json").read_text())
    lines = (ROOT / "evidence" / "records" / "wire" / "history.jsonl").read_text().splitlines()
    levels = [json.loads(line)["s"] for line in lines]
    formula = summary["paper_bits"]  # bits a client; eight clients and eight bits a byte cancel out
    return (
        f"s rose from {levels[0]} to {levels[-1]} while the loss fell to {summary['final_loss']:.3f}.\nBy the paper's formula "
        f"the uplink of all clients takes {formula / 1e6:.0f} MB in {len(levels)} rounds. The frames, headers and losses\n"
        f"took {summary['wire_bytes_up'] / 1e6:.2f} MB, {formula / summary['wire_bytes_up']:.0f}x less (target: 100x)."
    )


def memory_rows(rows: list[dict]) -> list[list[str]]:
    kinds = dict.fromkeys((row["s"], row["codec"]) for row in rows)
    return [
        [str(s), codec, *(f"{r['peak_over_4d']:.2f}" for r in rows if (r["s"], r["codec"]) == (s, codec))]
        for s, codec in kinds
    ]


if __name__ == "__main__":
    main()
