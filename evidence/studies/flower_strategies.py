"""Flower's strategies with and without our two lines, in Flower's simulation: evidence/records/flower-strategies.json.

    python -m evidence.studies.flower_strategies                     every strategy with three seeds; resumes
    python -m evidence.studies.flower_strategies --strategies Krum

Ten clients train an MLP (d = 101,770) on 500 pictures each of the bundled sample: ten steps of SGD per round, batches
of 32, 20 rounds. Data are i.i.d.; the seed decides the first
weights and the mini-batches. Nothing is set on our side.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid, ServerApp, strategy
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.simulation import run_simulation
from torch import Tensor, nn

from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from adaquantfl.training import datasets, partitions
from evidence.pages.marked import RECORDS
from evidence.studies.traces import current_commit

RECORD = RECORDS / "flower-strategies.json"
CLIENTS, PICTURES, ROUNDS, STEPS, BATCH, ETA = 10, 5_000, 20, 10, 32, 0.1
EVERYBODY: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
NOISE, NORM = 0.02, 2.0  # of differential privacy; the norm of an update is about 1
CLIPPED = "DP, clients"
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": partial(FedAvg, **EVERYBODY),
    "FedAvgM": partial(strategy.FedAvgM, server_momentum=0.9, **EVERYBODY),
    "FedAdam": partial(strategy.FedAdam, eta=0.01, **EVERYBODY),
    "FedYogi": partial(strategy.FedYogi, eta=0.01, **EVERYBODY),
    "FedMedian": partial(strategy.FedMedian, **EVERYBODY),
    "FedTrimmedAvg": partial(strategy.FedTrimmedAvg, beta=0.2, **EVERYBODY),
    "Krum": partial(strategy.Krum, num_malicious_nodes=2, **EVERYBODY),
    "DP, server": lambda: strategy.DifferentialPrivacyServerSideFixedClipping(
        FedAvg(**EVERYBODY), NOISE, NORM, CLIENTS
    ),
    CLIPPED: lambda: strategy.DifferentialPrivacyClientSideFixedClipping(FedAvg(**EVERYBODY), NOISE, NORM, CLIENTS),
}
Run = dict[str, Any]


def build(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


@cache
def pictures() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the pictures to train and to test on, each with its labels."""
    data = datasets.load("fashion-mnist-sample")
    train_x, test_x = (
        (torch.as_tensor(x).float() / 255 - data.mean[0]) / data.std[0] for x in (data.train_x, data.test_x)
    )
    return train_x[:PICTURES], torch.as_tensor(data.train_y)[:PICTURES], test_x, torch.as_tensor(data.test_y)


def train(message: Message, context: Context) -> Message:
    """Train on the client's pictures."""
    torch.set_num_threads(1)
    content: Any = message.content
    config, client = content["config"], int(str(context.node_config["partition-id"]))
    x, y, _, _ = pictures()
    mine = partitions.partition(y.numpy(), CLIENTS, "iid", seed=0)[client]
    draw = torch.Generator().manual_seed(10_000 * config["seed"] + 100 * config["server-round"] + client)
    model = build(0)
    model.load_state_dict(content["arrays"].to_torch_state_dict())
    optimizer, total = torch.optim.SGD(model.parameters(), lr=ETA), 0.0
    for _ in range(STEPS):
        batch = mine[torch.randint(len(mine), (BATCH,), generator=draw)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]  # as PyTorch has it
        optimizer.step()
        total += loss.item()
    metrics = MetricRecord({"train_loss": total / STEPS, "num-examples": len(mine)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@torch.no_grad()
def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the test accuracy."""
    _, _, x, y = pictures()
    model = build(0)
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": float((model(x).argmax(1) == y).float().mean())})


def forget(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod: a client of a new training knows nothing of the one before."""
    content: Any = message.content
    if content["config"]["server-round"] == 1:
        context.state.clear()
    return call_next(message, context)


def clip(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod: Flower's own clipping, where the clients are to do it."""
    content: Any = message.content
    clips = content["config"]["clients-clip"]
    return fixedclipping_mod(message, context, call_next) if clips else call_next(message, context)


def play(grid: Grid, name: str, ours: bool, seed: int) -> Run:
    """Return the accuracy after each round, and with our lines the bytes of every round in kB."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # Flower's noise comes from there
    plain = STRATEGIES[name]()
    result = (AdaQuantStrategy(plain) if ours else plain).start(
        grid,
        ArrayRecord(build(seed).state_dict()),
        num_rounds=ROUNDS,
        train_config=ConfigRecord({"seed": seed, "clients-clip": name == CLIPPED}),
        evaluate_fn=evaluate,
    )
    metrics: dict[int, Any] = dict(result.evaluate_metrics_serverapp)
    accuracy = [round(metrics[number]["accuracy"], 4) for number in range(1, ROUNDS + 1)]
    found: Run = {"strategy": name, "ours": ours, "seed": seed, "accuracy": accuracy}
    if ours:
        rounds: list[Any] = list(result.train_metrics_clientapp.values())
        for way in ("up", "down"):
            found[f"kB_{way}"] = [round(one[f"aq_message_bytes_{way}"] / 1000, 1) for one in rounds]
    return found


def play_all(grid: Grid, names: list[str], seeds: list[int], out: Path) -> None:
    """Play what is missing; the record is written after each training."""
    record: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"runs": []}
    torch.set_num_threads(1)
    for seed, name, ours in product(seeds, names, (False, True)):
        if any((one["strategy"], one["ours"], one["seed"]) == (name, ours, seed) for one in record["runs"]):
            continue
        record["runs"].append(play(grid, name, ours, seed))
        record["versions"] = {package: version(package) for package in ("flwr", "torch")}
        record |= {
            "commit": current_commit(),
            "clients": CLIENTS,
            "dimension": sum(one.numel() for one in build(0).parameters()),
        }
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(name, "ours" if ours else "plain", seed, record["runs"][-1]["accuracy"][-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default=";".join(STRATEGIES), help="separated by semicolons")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    names, seeds = options.strategies.split(";"), [int(seed) for seed in options.seeds.split(",")]
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    client_app, server_app = ClientApp(mods=[forget, quantize_mod, clip]), ServerApp()
    client_app.train()(train)
    server_app.main()(lambda grid, context: play_all(grid, names, seeds, options.out))
    backend: Any = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 1, "log_to_driver": False}}
    run_simulation(server_app, client_app, CLIENTS, backend_config=backend)


if __name__ == "__main__":
    from evidence.studies import flower_strategies  # under this name Ray's workers find it too

    flower_strategies.main()
