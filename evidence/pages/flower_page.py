"""Write the tables of docs/how-to/hosts.md from evidence/records/benchmarks/engines.json.

python evidence/pages/flower_page.py
"""

from __future__ import annotations

from typing import Any

from adaquantfl.report.tables import amount, markdown
from evidence.pages.engines_page import read, table
from evidence.pages.marked import ROOT, write

PAGE = ROOT / "docs" / "how-to" / "hosts.md"
NAMES = {
    "flower": "`--engine flower`",
    "flower-deployment": "`--engine flower-deployment`",
    "flower-supernode": "Flower's own SuperNodes",
}


def time(engines: dict[str, Any]) -> str:
    """A round's time against the local engine's, and where a deployment's goes."""
    rows = []
    measured = {name: title for name, title in NAMES.items() if name in engines}
    for name, title in measured.items():
        figures = engines[name]["overhead"]
        times = [f"{figures[key]:.2f} s" for key in ("local_round_seconds", "round_seconds")]
        beyond = figures["round_seconds"] - figures["local_round_seconds"]
        rows.append(
            [title, *times, f"{beyond:+.2f} s", f"{figures['overhead']:+.0%}", f"{figures['cpu_overhead']:+.0%}"]
        )
    header = ["", "local", "Flower", "beyond local", "median of the pairs", "processors' time"]
    parts = [
        [title, *(f"{engines[name]['breakdown'][key]:.2f} s" for key in PARTS)]
        for name, title in measured.items()
        if "breakdown" in engines[name]
    ]
    return (
        "Rounds of the CNN (8 clients, tau = 10, batch 64) in turn with the local engine's, on the same "
        f"{engines['flower']['overhead']['workers']} cores:\n\n"
        f"{markdown([header, *rows])}\n\n"
        "The next table shows where the time of a deployment's round goes. A proxy between the nodes and the SuperLink "
        "measured it; values are medians. The clients share the cores here, so their work takes longer than on hosts "
        "of their own.\n\n"
        f"{markdown([['', *PARTS.values()], *parts])}"
    )


PARTS = {
    "until_taken_seconds": "until a node has taken its message",
    "at_the_node_seconds": "until its answer leaves",
    "of_that_work_seconds": "of that, training and encoding",
    "until_received_seconds": "from the last answer until the server has it",
}


def traffic(engines: dict[str, Any]) -> str:
    """What passes the sockets in a round, beside what the frames and the model have."""
    flower = engines["flower-deployment"]
    extra = [(row["socket_bytes_up"] - row["frame_bytes_up"]) / row["clients"] for row in flower["bytes"]]
    exact, idle = flower["exact_downlink"], flower["idle"]
    clients = flower["bytes"][0]["clients"]
    return (
        f"The table has a round of the CNN with {clients} clients, all clients together, with a model that they did "
        f"not have. HTTP is included, the headers of TCP and IP are not.\n\n{table(flower['bytes'], digits=3)}\n\n"
        f"Around an answer there are {min(extra) / 1000:.0f} to {max(extra) / 1000:.0f} kB per client. They are a "
        f"dozen HTTP requests with their headers, and the questions for messages while it works. A node that waits "
        f"asks every 0.2 s here: {idle['up_bytes_a_second'] / 1e3:.1f} kB up and "
        f"{idle['down_bytes_a_second'] / 1e3:.1f} kB down per second (`--poll` sets how often). With the exact "
        f"downlink a round at s = {exact['s']} took {amount(exact['socket_bytes_up'], 'B')} up and "
        f"{amount(exact['socket_bytes_down'], 'B')} down."
    )


def blocks() -> dict[str, str]:
    engines = read()
    return {"flower-time": time(engines), "flower-bytes": traffic(engines)}


if __name__ == "__main__":
    write(PAGE, blocks())
