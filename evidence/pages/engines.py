"""The tables of evidence/details/performance.md about gloo, from records/benchmarks/engines.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaquantfl.report.tables import amount, markdown
from evidence.pages.marked import read, verdict

LARGE = 100_000  # bytes of a frame from which on the target for the uplink counts
MOST_UP, MOST_TIME = 1.05, 0.10  # the targets


def _gloo() -> dict[str, Any]:
    return dict(read("benchmarks/engines")["engines"]["gloo"])


def table(rows: Sequence[dict[str, Any]], digits: int) -> str:
    """A row for each number of levels: frames, and what they and the models took on the sockets."""
    header = ["s", "a frame", "bodies, up", "frames, up", "sockets, up", "over frames", "sockets, down", "over models"]
    grid = [
        [
            "float32" if row["s"] is None else str(row["s"]),
            *(amount(row[name], "B") for name in ("frame_bytes", "payload_bytes_up", "frame_bytes_up")),
            amount(row["socket_bytes_up"], "B"),
            f"{row['up_over_frames']:.{digits}f}",
            amount(row["socket_bytes_down"], "B"),
            f"{row['socket_bytes_down'] / row['model_bytes_down']:.{digits}f}",
        ]
        for row in rows
    ]
    return markdown([header, *grid])


def traffic() -> str:
    """What passes the sockets in a round, beside what the frames and the model have."""
    gloo = _gloo()
    large = max(row["up_over_frames"] for row in gloo["bytes"] if row["frame_bytes"] > LARGE)
    extra = [(row["socket_bytes_up"] - row["frame_bytes_up"]) / row["clients"] for row in gloo["bytes"]]
    exact = gloo["exact_downlink"]
    clients = gloo["bytes"][0]["clients"]
    return (
        f"The table has a round of the CNN with {clients} clients, all clients together, with a model that they did "
        f"not have. Bytes are those that gloo wrote and read, by the kernel's counters of the server's connections. "
        f"The headers of TCP and IP are not included.\n\n{table(gloo['bytes'], digits=4)}\n\n"
        f"Frames over 100 kB pass in at most {large:.4f} times their bytes (target: {MOST_UP}). Around an answer there "
        f"are at most {max(extra):.0f} bytes, whatever its frame: the headers, ours and gloo's. With the "
        f"exact downlink a round at s = {exact['s']} took {amount(exact['socket_bytes_up'], 'B')} up and "
        f"{amount(exact['socket_bytes_down'], 'B')} down."
    )


def time() -> str:
    """A round's time against the local engine's."""
    figures = _gloo()["overhead"]
    met = verdict(figures["overhead"] <= MOST_TIME)
    clock, cpu = figures["ratios"], figures["cpu_ratios"]
    return (
        f"{figures['rounds']} rounds of the CNN (8 clients, tau = 10, batch 64) ran in turn with the local engine's, "
        f"both with {figures['workers']} clients at a time. By the median of the pairs, a round took "
        f"{1 + figures['overhead']:.1%} of the local engine's time (target: at most {1 + MOST_TIME:.0%}, {met}). "
        f"The pairs are between {clock[0]:.2f} and {clock[-1]:.2f}. It took {1 + figures['cpu_overhead']:.1%} of its "
        f"processors' time (between {cpu[0]:.2f} and {cpu[-1]:.2f}), which says more on a machine that is shared."
    )
