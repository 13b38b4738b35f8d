"""The table of evidence/details/performance.md about the downlink, from records/downlink.json."""

from __future__ import annotations

from adaquantfl.report.tables import amount, markdown
from evidence.pages.marked import read


def traffic() -> str:
    """Return what all clients sent and got, next to FedAvg in float32."""
    record = read("downlink")
    runs = {name: record[name] for name in ("model", "exact")}
    rounds, clients = len(runs["exact"]["s"]), runs["exact"]["clients"]
    whole = 4.0 * runs["exact"]["dimension"] * clients * rounds
    assert len({run["model_sha256"] for run in runs.values()}) == 1, "the downlink changed the model"
    sent = {"FedAvg in float32": (whole, whole)}
    for name, run in runs.items():
        sent[f"AdaQuantFL, downlink {name}"] = (run["wire_bytes_up"][-1], run["wire_bytes_down"][-1])
    grid = [[f"{rounds} rounds, {clients} clients", "up", "down", "both", "of float32"]]
    for title, (up, down) in sent.items():
        sizes = [amount(size, "B") for size in (up, down, up + down)]
        grid.append([title, *sizes, f"1/{2 * whole / (up + down):.3g}"])
    return markdown(grid)
