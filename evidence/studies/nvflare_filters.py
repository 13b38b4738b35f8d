"""NVFlare's own quantization filters next to ours, on the model of its example hello-pt: bytes, seconds, loss.

    python -m evidence.studies.nvflare_filters --out evidence/records/nvflare.json

Two clients train as the example's do: SGD with learning rate 0.01 and momentum 0.9, batches of 32, an epoch per round.
The rounds are played in this process. Each message goes through what NVFlare does with it: the sender's filter, FOBS,
the receiver's filter. The example's CIFAR-10 is not in this package, so that the pictures are the bundled sample of
Fashion-MNIST, padded to 32x32 and repeated for three channels.

NVFlare's other formats (8 and 4 bits) ask for a GPU. Runs that are in the record are not repeated. It needs nvflare and
torch.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, pad, relu

import adaquantfl as aq
from adaquantfl.training import datasets
from evidence.studies.traces import current_commit

RECORD = Path("evidence") / "records" / "nvflare.json"
CLIENTS, PICTURES, BATCH, LEARNING_RATE, MOMENTUM = 2, 2500, 32, 0.01, 0.9  # pictures of each client
EVALUATED = 2000  # pictures that the loss is measured on: the first of the clients' own
METHODS = ("none", "float16", "adaquant", "ours")
Arrays = dict[str, np.ndarray[Any, Any]]
SITE, SERVER = "site-{}", "server"
FOLDER = TemporaryDirectory()  # of the clients


class SimpleNetwork(nn.Module):
    """The layers of the example's model: 62,006 parameters in ten arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = max_pool2d(relu(self.conv2(max_pool2d(relu(self.conv1(x)), 2))), 2)
        out: torch.Tensor = self.fc3(relu(self.fc2(relu(self.fc1(x.flatten(1))))))
        return out


def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures for all clients, from -1 to 1, as large as CIFAR-10's."""
    data, most = datasets.load("fashion-mnist-sample"), CLIENTS * PICTURES
    x = torch.from_numpy(data.train_x[:most]).float() / 127.5 - 1
    return pad(x, (2, 2, 2, 2), value=-1.0).repeat(1, 3, 1, 1), torch.from_numpy(data.train_y[:most])


class Job:
    """The server and its clients, with a filter at both ends of both directions; and what was measured of them."""

    def __init__(self, method: str, seed: int) -> None:
        self.number, self.filters = f"{method}, seed {seed}", filters(method)
        self.bytes: dict[str, list[int]] = {"up": [], "down": []}
        self.seconds = 0.0

    def carry(self, way: str, arrays: Arrays, kind: str, site: str, round: int, steps: int) -> Arrays:
        """Arrays as the receiver sees them."""
        from nvflare.apis.dxo import DXO, MetaKey, from_shareable
        from nvflare.apis.fl_constant import FilterKey
        from nvflare.app_common.app_constant import AppConstants
        from nvflare.fuel.utils import fobs

        sender, receiver = self.filters[way]
        ends = (site, SERVER) if way == "up" else (SERVER, site)
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
        message = DXO(kind, {name: array.copy() for name, array in arrays.items()}, meta).to_shareable()
        message.set_header(AppConstants.CURRENT_ROUND, round)
        began = time.process_time()  # not the clock's: the machine has other work too
        if sender is not None:
            message = sender.process(message, self._context(*ends, FilterKey.OUT))
        self.seconds += time.process_time() - began
        data = fobs.dumps(message)
        self.bytes[way].append(len(data))
        message = fobs.loads(data)
        began = time.process_time()
        if receiver is not None:
            message = receiver.process(message, self._context(*ends[::-1], FilterKey.IN))
        self.seconds += time.process_time() - began
        found = from_shareable(message).data
        return {name: np.asarray(found[name]).reshape(array.shape) for name, array in arrays.items()}

    def _context(self, name: str, peer: str, way: str) -> Any:
        from nvflare.apis.fl_constant import FLContextKey, ReservedKey
        from nvflare.apis.fl_context import FLContext

        made, other = FLContext(), FLContext()
        for context, identity in ((made, name), (other, peer)):
            context.set_prop(ReservedKey.IDENTITY_NAME, identity, private=False, sticky=False)
            context.set_prop(ReservedKey.RUN_NUM, self.number, sticky=False)
        made.set_prop(FLContextKey.FILTER_DIRECTION, way, sticky=False)
        made.set_prop(ReservedKey.ENGINE, Engine(), sticky=False)
        made.set_peer_context(other)
        return made


class Engine:
    """What the filters ask NVFlare's engine."""

    def get_clients(self) -> list[Any]:
        return [SimpleNamespace(name=SITE.format(number + 1)) for number in range(CLIENTS)]

    def get_workspace(self) -> Engine:
        return self

    def get_run_dir(self, job: str) -> str:
        return FOLDER.name

    def fire_event(self, event: str, context: Any) -> None:
        """Nobody listens."""


def filters(method: str) -> dict[str, tuple[Any, Any]]:
    """The filters at the two ends of each direction."""
    if method == "none":
        return {"up": (None, None), "down": (None, None)}
    if method == "ours":
        from adaquantfl.nvflare import ClientFilter, ServerFilter

        return {"up": (ClientFilter(), ServerFilter()), "down": (ServerFilter(), ClientFilter())}
    from nvflare.app_opt.pt.quantization.dequantizer import ModelDequantizer
    from nvflare.app_opt.pt.quantization.quantizer import ModelQuantizer

    return {way: (ModelQuantizer(method), ModelDequantizer()) for way in ("up", "down")}


def play(method: str, rounds: int, seed: int) -> dict[str, Any]:
    """One training: the loss of every round's model, and what its messages cost."""
    x, y = pictures()
    torch.manual_seed(seed)
    model = SimpleNetwork()
    weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    clients = [SimpleNetwork() for _ in range(CLIENTS)]
    steps = [torch.optim.SGD(one.parameters(), LEARNING_RATE, MOMENTUM) for one in clients]
    job, losses = Job(method, seed), []
    for round in range(rounds):
        mean = {name: np.zeros_like(value) for name, value in weights.items()}
        for client, (net, step) in enumerate(zip(clients, steps, strict=True)):
            site = SITE.format(client + 1)
            given = job.carry("down", weights, "WEIGHTS", site, round, 1)
            net.load_state_dict({name: torch.from_numpy(value) for name, value in given.items()})
            draw = torch.Generator().manual_seed(1_000_000 * seed + 1000 * round + client)
            batches = (torch.randperm(PICTURES, generator=draw) + client * PICTURES).split(BATCH)  # type: ignore[no-untyped-call]
            for batch in batches:
                step.zero_grad()
                cross_entropy(net(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
                step.step()
            update = {name: value.numpy() - given[name] for name, value in net.state_dict().items()}
            for name, value in job.carry("up", update, "WEIGHT_DIFF", site, round, len(batches)).items():
                mean[name] += value / CLIENTS
        weights = {name: value + mean[name] for name, value in weights.items()}
        model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        with torch.no_grad():
            losses.append(round_number(float(cross_entropy(model(x[:EVALUATED]), y[:EVALUATED])), 5))
        print(f"{method}, seed {seed}, round {round}: loss {losses[-1]:.4f}", flush=True)
    sums = {f"bytes {way}": np.reshape(sizes, (rounds, -1)).sum(axis=1).tolist() for way, sizes in job.bytes.items()}
    milliseconds = 1000 * job.seconds / (rounds * CLIENTS)
    return {**sums, "milliseconds": round_number(milliseconds, 2), "loss": losses}


def round_number(value: float, digits: int) -> float:
    return float(f"{value:.{digits}f}")


def main() -> None:
    """Play what the record lacks."""
    from nvflare.apis.utils.decomposers import flare_decomposers
    from nvflare.app_common.decomposers import common_decomposers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    aq.set_threads(1)
    flare_decomposers.register()
    common_decomposers.register()
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"runs": {}}
    record |= {"clients": CLIENTS, "rounds": options.rounds, "commit": current_commit()}
    record["versions"] = {name: version(name) for name in ("nvflare", "torch", "numpy")}
    for seed in range(options.seeds):
        for method in METHODS:
            name = f"{method}, seed {seed}"
            if name not in record["runs"]:
                record["runs"][name] = play(method, options.rounds, seed)
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
