"""The runs that `faults.py` plays: settings and faults by a seed, and what the clients train.

Each client pulls a small model towards a point of its own: no data, and no PyTorch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.quantizers.registry import find
from adaquantfl.rules import DAdaQuant, FedDQ

RULES: dict[str, aq.Rule] = {
    "adaquant": aq.AdaQuant(s0=2, interval=4.0),
    "2bit": aq.Fixed(bits=2),
    "fp32": aq.FullPrecision(),
    "auto": aq.Auto(),
    "dadaquant": DAdaQuant(s0=2, patience=2),
    "feddq": FedDQ(resolution=0.2),
}
QUANTIZERS = ("uniform", "nearest", "stc", "centroid", "lattice", "eden", "rotated", "natural", "terngrad")
DOWNLINKS: dict[str, Any] = {"model": "model", "exact": "exact", "late": "late"}
SCOPES: tuple[str | int, ...] = ("tensor", "whole", 16)
ETA = 0.1
SHAPES: dict[str, tuple[int, ...]] = {"conv": (4, 3, 3), "bias": (5,), "bn.running_mean": (3,), "linear": (6, 4)}


@dataclass(frozen=True)
class Scenario:
    """The settings of a run, and how often what goes wrong.

    known: whether the server knows its clients (a cohort) or is told whom to ask. fault: the chance that something
    happens to a message. kill, client_kill: at a step. write: the share of steps after which the server's state is
    written. kill_at: kill the server at this step alone. packed: whether states become bytes when they are written, or
    only when they are read, which is faster.
    """

    seed: int
    rule: str = "adaquant"
    quantizer: str = "uniform"
    downlink: str = "exact"
    scope: str | int = "tensor"
    secrets: bool = False
    known: bool = False
    flat: bool = False
    clients: int = 3
    least: int = 1
    limit: float | str = 0.0
    rounds: int = 4
    fault: float = 0.0
    kill: float = 0.0
    client_kill: float = 0.0
    write: float = 1.0
    kill_at: int | None = None
    codec: str = "auto"
    undo: float = 0.0
    packed: bool = True

    @staticmethod
    def of(seed: int) -> Scenario:
        """The scenario of a seed."""
        draw = random.Random(seed)
        clients, rule, quantizer = draw.randint(1, 4), draw.choice(list(RULES)), draw.choice(QUANTIZERS)
        if rule in ("auto", "feddq") and not find(quantizer).traits.follows_rule:
            quantizer = "uniform"
        return Scenario(
            seed,
            rule,
            quantizer,
            draw.choice(list(DOWNLINKS)),
            draw.choice(SCOPES),
            secrets=draw.random() < 0.4,
            known=draw.random() < 0.4,
            flat=draw.random() < 0.2,
            clients=clients,
            least=draw.randint(0, clients),
            limit=draw.choice((0.0, 0.0, 100.0, "3x")),
            rounds=draw.randint(2, 4),
            fault=draw.choice((0.1, 0.3, 0.6)),
            kill=draw.choice((0.0, 0.05, 0.15)),
            client_kill=draw.choice((0.0, 0.02, 0.1)),
            write=draw.choice((1.0, 0.6, 0.25)),
            codec=draw.choice(("fixed", "fixed", "sparse", "auto")),
            undo=draw.choice((0.0, 0.0, 2.0)),
            packed=draw.random() < 0.2,
        )

    def server(self) -> aq.Server:
        """A new server."""
        sizes = tuple(map(examples, range(self.clients)))
        per_round = random.Random(self.seed).randint(1, self.clients)
        cohort = Cohort(sizes, per_round, least=min(self.least, per_round)) if self.known else Cohort(least=self.least)
        return aq.Server(
            start(self.flat),
            rule=RULES[self.rule],
            quantizer=self.quantizer,
            downlink=DOWNLINKS[self.downlink],
            scope=self.scope,
            codec=self.codec,
            cohort=cohort,
            max_update_norm=self.limit,
            undo=self.undo,
            sparsity=8,
            seed=self.seed,
            secrets=self.keys(),
        )

    def keys(self) -> dict[int, bytes]:
        """The clients' secrets."""
        return {client: b"secret of %d" % client for client in range(self.clients)} if self.secrets else {}


def start(flat: bool) -> Any:
    """The first model."""
    rng = np.random.default_rng(3)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    if flat:
        return np.concatenate([array.ravel() for array in arrays.values()])
    return {**arrays, "bn.num_batches_tracked": np.zeros((), dtype=np.int64)}


def examples(client: int) -> int:
    return 10 * (client + 1)


@cache
def _target(client: int, shape: tuple[int, ...]) -> Any:
    return (np.random.default_rng([client, *shape]).standard_normal(shape) + 2).astype(np.float32)


def _floats(weights: Any) -> dict[str, Any]:
    named = weights if isinstance(weights, dict) else {"": weights}
    return {name: array for name, array in named.items() if array.dtype.kind == "f"}


def train(client: int, weights: Any) -> Any:
    """A step towards the client's point."""
    moved = {
        name: array + np.float32(0.4) * (_target(client, array.shape) - array)
        for name, array in _floats(weights).items()
    }
    if not isinstance(weights, dict):
        return moved[""]
    counter = "bn.num_batches_tracked"
    return {**weights, **moved, counter: weights[counter] + 3}


def loss_at(client: int, weights: Any) -> float:
    """The mean squared distance to the client's point."""
    parts = [np.mean((array - _target(client, array.shape)) ** 2) for array in _floats(weights).values()]
    return float(np.mean(parts))
