"""The tables of evidence/details/peers.md and docs/performance.md, from records/benchmarks/peers.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from adaquantfl.report.tables import markdown, significant
from evidence.pages import marked

VECTORS = {"cnn": "CNN update", "gaussian": "Gaussian", "laplace": "Laplace", "large": "Gaussian, 11.2 M"}
NONE = "—"
Row = dict[str, Any]


def read() -> dict[str, Any]:
    return marked.read("benchmarks/peers")


def of_vector(record: dict[str, Any], name: str) -> list[Row]:
    """Rows of lossy methods on a vector that can be compared."""
    rows = [row for row in record["rows"] if row.get("vector") == name and "failed" not in row and row["error"] > 0]
    return [row for row in rows if not hopeless(record, row)]


def hopeless(record: dict[str, Any], row: Row) -> bool:
    """A biased method whose error is that of sending nothing, or more: no mean over clients makes it smaller."""
    unbiased = {(m["peer"], m["name"]) for m in record["methods"] if m["rounding"] == "random"}
    return bool(row.get("error", 0) >= 1 and (row["peer"], row["method"]) not in unbiased)


def title(row: Row) -> str:
    return f"{row['peer']}: {row['method']}"


def times(value: float) -> str:
    """A ratio, bold where AdaQuantFL is behind."""
    return bold(f"{significant(value, 2)}x", value < 1)


def share(value: float) -> str:
    return bold(f"{value:.2f}", value > 1)


def bold(text: str, really: bool) -> str:
    return f"**{text}**" if really else text


def bits(count: float, d: int) -> str:
    return significant(8 * count / d)


def setting(ours: Row) -> str:
    """AdaQuantFL's setting in words."""
    s = f"{ours['s']:.0f}" if ours["s"] >= 20 else significant(ours["s"], 2)
    weight = "" if ours["weight"] > 0.99 else f", weight {ours['weight']:.2f}"
    code = ", fixed code" if ours["codec"] == "fixed" else ""
    return f"{ours['choice']}, s = {s}{weight}{code}"


def against(row: Row, who: str) -> list[str]:
    """Our setting, its bytes over the peer's, and how many times as fast we encode and decode."""
    if who not in row["ours"]:
        return ["not reached" if who == "small" else "none", NONE, NONE, NONE]
    seconds = row["seconds"][who]
    return [
        setting(row["ours"][who]),
        share(row["ours"][who]["bytes"] / row["bytes"]),
        times(seconds["encode_times"]),
        times(seconds["decode_times"]) if decodes(row) else NONE,
    ]


def decodes(row: Row) -> bool:
    """Whether the peer has anything to decode: some return floats at once."""
    return bool(row["seconds"]["peer"]["decode"] > row["seconds"]["peer"]["copy"] / 3)


def vector_table(record: dict[str, Any], name: str) -> str:
    grid = [
        [
            f"{VECTORS[name]}",
            "error",
            "bits per element",
            "our smallest at its error",
            "bytes / its",
            "encode",
            "decode",
            "our fastest that is no larger",
            "bytes / its",
            "encode",
            "decode",
        ]
    ]
    for row in of_vector(record, name):
        about = [title(row), f"{row['error']:.1e}", bits(row["bytes"], row["d"])]
        grid.append([*about, *against(row, "small"), *against(row, "fast")])
    return markdown(grid)


def speeds(record: dict[str, Any]) -> str:
    """GB/s of float32 on the large vector, beside copying it."""
    grid = [
        [
            "GB/s of float32, d = 11.2 M",
            "copy",
            "encode",
            "decode",
            "our smallest encodes",
            "decodes",
            "our fastest encodes",
            "decodes",
        ]
    ]
    for row in of_vector(record, "large"):
        steps = [("peer", "copy"), *((who, step) for who in ("peer", "small", "fast") for step in ("encode", "decode"))]
        grid.append([title(row), *(speed(row, who, step) for who, step in steps)])
    return markdown(grid)


def speed(row: Row, who: str, step: str) -> str:
    if who not in row["seconds"] or (who, step, decodes(row)) == ("peer", "decode", False):
        return NONE
    return significant(4 * row["d"] / row["seconds"][who][step] / 1e9, 2)


def levels_table(record: dict[str, Any]) -> str:
    """Lossless coders on the same levels."""
    grid = [["coder", "levels", "bits per element", "our bits", "our bytes / its", "encode", "decode"]]
    for row in record["rows"]:
        if "scope" in row and "failed" not in row:
            where = "one norm" if row["scope"] == "whole" else f"buckets of {row['scope']}"
            seconds = row["seconds"]["small"]
            grid.append(
                [
                    title(row),
                    f"{where}, s = {row['s']}",
                    bits(row["bytes"], row["d"]),
                    bits(row["our_bytes"], row["d"]),
                    share(row["our_bytes"] / row["bytes"]),
                    times(seconds["encode_times"]),
                    times(seconds["decode_times"]),
                ]
            )
    return markdown(grid)


def summary(record: dict[str, Any]) -> str:
    """In how many comparisons AdaQuantFL is ahead."""
    rows = [row for name in VECTORS for row in of_vector(record, name)]
    smaller = [row for row in rows if "small" in row["ours"] and row["ours"]["small"]["bytes"] < row["bytes"]]
    faster = [row for row in rows if any(ahead(row, who) for who in row["ours"])]
    peers = sorted({row["peer"] for row in rows})
    count, total = len({(row["peer"], row["method"]) for row in rows}), len(rows)
    return (
        f"{count} methods of {len(peers)} libraries, {total} comparisons. AdaQuantFL sends fewer bytes at no larger an "
        f"error in {len(smaller)} of them ({len(smaller) / total:.0%}). With one and the same setting it sends no more "
        f"bytes and both encodes and decodes faster in {len(faster)} ({len(faster) / total:.0%})."
    )


def ahead(row: Row, who: str) -> bool:
    """No more bytes and faster in both directions, with one setting."""
    seconds = row["seconds"][who]
    fits = row["ours"][who]["bytes"] <= row["bytes"]
    return bool(fits and seconds["encode_times"] >= 1 and (seconds["decode_times"] >= 1 or not decodes(row)))


def behind(record: dict[str, Any]) -> str:
    """Where a peer is ahead, by method: bytes over all vectors, speed of whichever of our two is the faster."""
    grid = [["a peer is ahead", "in bytes", "in encoding", "in decoding"]]
    for name in dict.fromkeys(title(row) for vector in VECTORS for row in of_vector(record, vector)):
        rows = [row for vector in VECTORS for row in of_vector(record, vector) if title(row) == name]
        cells = [worse_bytes(rows), slower(rows, "encode"), slower(rows, "decode")]
        if any(cell != NONE for cell in cells):
            grid.append([name, *cells])
    return markdown(grid)


def worse_bytes(rows: Sequence[Row]) -> str:
    found = [
        f"{VECTORS[row['vector']]}: {row['ours']['small']['bytes'] / row['bytes']:.2f}"
        if "small" in row["ours"]
        else f"{VECTORS[row['vector']]}: not reached"
        for row in rows
        if "small" not in row["ours"] or row["ours"]["small"]["bytes"] > row["bytes"]
    ]
    return "; ".join(found) or NONE


def slower(rows: Sequence[Row], step: str) -> str:
    """The lowest speed over the vectors, where it is below the peer's."""
    timed = [row for row in rows if row["ours"] and (step == "encode" or decodes(row))]
    best = [max(row["seconds"][who][f"{step}_times"] for who in row["ours"]) for row in timed] or [math.inf]
    return f"{significant(min(best), 2)}x" if min(best) < 1 else NONE


def versions(record: dict[str, Any]) -> str:
    found = {**record["peer_versions"], "AdaQuantFL": record["versions"]["adaquantfl"]}
    return "Versions: " + ", ".join(f"{name} {number}" for name, number in found.items()) + "."


def missing(record: dict[str, Any]) -> str:
    """What did not install or did not run, and why."""
    lines = [f"- **{name}** did not install: {why}" for name, why in record["not_installed"].items()]
    lines += [
        f"- **{title(row)}** failed on the {place(row)}: {row['failed']}" for row in record["rows"] if "failed" in row
    ]
    slow = {title(row): row for row in record["rows"] if "vector" in row}  # the last vector of each
    lines += [
        f"- **{name}** took {row['seconds']['peer']['encode']:.0f} s on the {place(row)} and was not tried further."
        for name, row in slow.items()
        if row["vector"] != "large" and "failed" not in row
    ]
    measured = {(row["peer"], row["method"]) for row in record["rows"]}
    lines += [
        f"- **{m['peer']}: {m['name']}** was not reached: the run was stopped before it."
        for m in record["methods"]
        if (m["peer"], m["name"]) not in measured
    ]
    lines += [
        f"- **{title(row)}** on the {VECTORS[row['vector']]} has an error of {row['error']:.2f}; sending nothing has 1."
        for row in record["rows"]
        if hopeless(record, row)
    ]
    lines += [
        f"- **{title(row)}** loses nothing and sends {bits(row['bytes'], row['d'])} bits per element of the "
        f"{VECTORS[row['vector']]}; AdaQuantFL has no such mode but float32."
        for row in record["rows"]
        if row.get("vector") == "cnn" and row.get("error") == 0
    ]
    return "\n".join(lines) or "Everything that was tried installed and ran."


def place(row: Row) -> str:
    return VECTORS[row["vector"]] if "vector" in row else f"levels, s = {row['s']}"


def counted(record: dict[str, Any]) -> str:
    """How each peer rounds and how its bytes are counted."""
    grid = [["method", "rounding", "bytes counted"]]
    grid += [[f"{m['peer']}: {m['name']}", m["rounding"], m["counted"]] for m in record["methods"]]
    return markdown(grid)


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "summary": summary,
    **{name: partial(vector_table, name=name) for name in VECTORS},
    "speeds": speeds,
    "levels": levels_table,
    "behind": behind,
    "missing": missing,
    "counted": counted,
    "versions": versions,
}


def part(name: str) -> str:
    """Return one of the page's parts."""
    return PARTS[name](read())
