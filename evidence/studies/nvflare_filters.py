"""NVFlare's own quantization filters next to ours, on the model of its example hello-pt: bytes, error, seconds, loss.

    python -m evidence.studies.nvflare_filters --out evidence/records/nvflare.json

Two clients train as the example's do: SGD with learning rate 0.01 and momentum 0.9, batches of 32, an epoch per round.
The rounds are played in this process. Each result goes through what NVFlare does with it: the client's filter, FOBS,
the server's filter. The example's CIFAR-10 is not in this package, so that the pictures are the bundled sample of
Fashion-MNIST, padded to 32x32 and repeated for three channels.

blockwise8, float4 and normfloat4 ask for a GPU. Here `Tensor.cuda` returns the tensor itself, and bitsandbytes works on
the CPU. Runs that are in the record are not repeated. It needs nvflare, bitsandbytes and torch.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, pad, relu

import adaquantfl as aq
from adaquantfl.training import datasets

RECORD = Path("evidence") / "records" / "nvflare.json"
CLIENTS, PICTURES, BATCH, LEARNING_RATE, MOMENTUM = 2, 2500, 32, 0.01, 0.9  # pictures of each client
REPEATED = 50  # for the time of a filter
EVALUATED = 2000  # pictures that the loss is measured on: the first of the clients' own
THEIRS = ("float16", "blockwise8", "float4", "normfloat4", "adaquant")
ERRORS = (1.0, 4.0, 8.0, 16.0, 64.0)
METHODS = ("none", *THEIRS, "ours", "ours fitted 0.9", *(f"ours centroid {error:g}" for error in ERRORS))
SITE = "site-{}"


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


class Wire:
    """One client's way to the server: its filter, FOBS, the server's filter; and what was measured of it."""

    def __init__(self, method: str, site: str) -> None:
        from nvflare.apis.fl_constant import ReservedKey
        from nvflare.apis.fl_context import FLContext

        self.method = method
        self.out, self.back = filters(method)
        self.context = FLContext()
        self.context.set_prop(ReservedKey.IDENTITY_NAME, site, private=False, sticky=True)
        self.bytes: list[int] = []
        self.errors: list[float] = []
        self.seconds: list[float] = []

    def carry(self, update: dict[str, np.ndarray[Any, Any]], round: int, steps: int) -> dict[str, Any]:
        """The update as the server sees it."""
        from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
        from nvflare.app_common.utils.fl_model_utils import FLModelUtils
        from nvflare.fuel.utils import fobs

        # Copies, since some filters change them in place. 4 bits get flat arrays: on the CPU, bitsandbytes decodes rows
        # wrong whose length is no multiple of its blocks, which would be counted as the filter's error.
        flat = self.method in ("float4", "normfloat4")
        params = {name: array.reshape(-1).copy() if flat else array.copy() for name, array in update.items()}
        model = FLModel(ParamsType.DIFF, params, current_round=round, meta={"NUM_STEPS_CURRENT_ROUND": steps})
        shareable = FLModelUtils.to_shareable(model)
        began = time.process_time()  # not the clock's: the machine has other work too
        sent = shareable if self.out is None else self.out.process(shareable, self.context)
        took = time.process_time() - began
        message = fobs.dumps(sent)
        arrived = fobs.loads(message)
        began = time.process_time()
        seen = arrived if self.back is None else self.back.process(arrived, self.context)
        self.seconds.append(took + time.process_time() - began)
        self.bytes.append(len(message))
        params = FLModelUtils.from_shareable(seen).params
        found = {name: np.asarray(params[name]).reshape(array.shape) for name, array in update.items()}
        wrong = sum(float(np.sum((found[name] - update[name]) ** 2, dtype=np.float64)) for name in update)
        self.errors.append(wrong / sum(float(np.sum(array**2, dtype=np.float64)) for array in update.values()))
        return found


def filters(method: str) -> tuple[Any, Any]:
    """A client's and a server's filter."""
    if method == "none":
        return None, None
    if method.startswith("ours"):
        from adaquantfl.nvflare import DequantizeFilter, QuantizeFilter

        _, *settings = method.split()  # none: the default
        given: dict[str, Any] = {"quantizer": settings[0], "error": float(settings[1])} if settings else {}
        return QuantizeFilter(**given), DequantizeFilter()
    from nvflare.app_opt.pt.quantization.dequantizer import ModelDequantizer
    from nvflare.app_opt.pt.quantization.quantizer import ModelQuantizer

    return ModelQuantizer(method), ModelDequantizer()


def play(method: str, rounds: int, seed: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """One training: the loss of every round's model, and what its messages cost."""
    x, y = pictures()
    torch.manual_seed(seed)
    model = SimpleNetwork()
    weights = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    clients = [SimpleNetwork() for _ in range(CLIENTS)]
    steps = [torch.optim.SGD(one.parameters(), LEARNING_RATE, MOMENTUM) for one in clients]
    wires = [Wire(method, SITE.format(client + 1)) for client in range(CLIENTS)]
    losses = []
    for round in range(rounds):
        mean = {name: np.zeros_like(value) for name, value in weights.items()}
        for client, (net, step, wire) in enumerate(zip(clients, steps, wires, strict=True)):
            net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
            draw = torch.Generator().manual_seed(1_000_000 * seed + 1000 * round + client)
            batches = (torch.randperm(PICTURES, generator=draw) + client * PICTURES).split(BATCH)  # type: ignore[no-untyped-call]
            for batch in batches:
                step.zero_grad()
                cross_entropy(net(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
                step.step()
            update = {name: value.numpy() - weights[name] for name, value in net.state_dict().items()}
            for name, value in wire.carry(update, round, len(batches)).items():
                mean[name] += value / CLIENTS
        weights = {name: value + mean[name] for name, value in weights.items()}
        model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
        with torch.no_grad():
            losses.append(float(cross_entropy(model(x[:EVALUATED]), y[:EVALUATED])))
        tell(f"{method}, seed {seed}, round {round}: loss {losses[-1]:.4f}, {wires[0].bytes[-1]:,} bytes")
    return {
        "bytes": round_number(fmean(size for wire in wires for size in wire.bytes), 1),
        "bytes by round": [fmean(sizes) for sizes in zip(*(wire.bytes for wire in wires), strict=True)],
        "error": fmean(error for wire in wires for error in wire.errors),
        "loss": [round_number(loss, 5) for loss in losses],
    }


def seconds(method: str, update: dict[str, np.ndarray[Any, Any]]) -> float:
    """Processor time of both filters for one update."""
    wire = Wire(method, SITE.format(1))
    for round in range(REPEATED):
        wire.carry(update, round, 1)
    return median(wire.seconds)


def first_update() -> dict[str, np.ndarray[Any, Any]]:
    """An update of the example's model: what 20 steps change."""
    x, y = pictures()
    torch.manual_seed(0)
    net = SimpleNetwork()
    before = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), LEARNING_RATE, MOMENTUM)
    for start in range(0, 20 * BATCH, BATCH):
        optimizer.zero_grad()
        batch = slice(start, start + BATCH)
        cross_entropy(net(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: value.numpy() - before[name] for name, value in net.state_dict().items()}


def round_number(value: float, digits: int) -> float:
    return float(f"{value:.{digits}f}")


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("nvflare", "bitsandbytes", "torch", "numpy")}


def main() -> None:
    """Play what the record lacks."""
    from nvflare.apis.utils.decomposers import flare_decomposers
    from nvflare.app_common.decomposers import common_decomposers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    aq.set_threads(1)
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]  # there is no GPU
    flare_decomposers.register()
    common_decomposers.register()
    update = first_update()
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"runs": {}}
    record |= {"clients": CLIENTS, "rounds": options.rounds, "versions": versions(), "machine": platform.machine()}
    record |= {"methods": METHODS, "seconds": record.get("seconds", {})}
    record["seconds"] |= {one: seconds(one, update) for one in METHODS if one not in record["seconds"]}
    for seed in range(options.seeds):
        for method in options.methods.split(","):
            name = f"{method}, seed {seed}"
            if name in record["runs"]:
                continue
            record["runs"][name] = play(method, options.rounds, seed, print)
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
