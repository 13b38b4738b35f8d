"""The bench's tasks: 8 of 8 clients and 5 of 100, three partitions, on the pictures that ship with the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..runs.tasks import LOGISTIC

PARTITIONS = {"iid": "iid", "dirichlet": "dirichlet(0.3)", "sorted": "sorted"}
MORE_ROUNDS = 1.2  # than float32, for every other method


@dataclass(frozen=True)
class BenchTask:
    """A task. source: as `load_config` takes it. rounds: of float32."""

    name: str
    title: str
    source: str
    rounds: int
    settings: dict[str, Any] = field(default_factory=dict)


# The bundled pictures and all else that the preset `demo` sets, so that these tasks do not change with it.
PICTURES: dict[str, Any] = {
    "dataset": "fashion-mnist-sample", "examples": 0, "model": "cnn", "partition": "iid", "scope": "tensor", "tau": 5,
    "eta": 0.1, "batch_size": 32, "target_loss": 0.0, "loss_samples": 256, "evaluate_every": 3, "checkpoint_every": 10,
}  # fmt: skip
_LOCAL = {"tau": 5, "batch_size": 32, "loss_samples": 64, "workers": 1, "evaluate_every": 1}
_PICTURES = {**PICTURES, **_LOCAL}
ALL: dict[str, Any] = {"clients": 8}
_SOME: dict[str, Any] = {
    "clients": 100, "clients_per_round": 5, "loss": "round", "loss_smoothing": 0.9,
}  # fmt: skip


def mlp(name: str, title: str, partition: str, rounds: int, clients: dict[str, Any]) -> BenchTask:
    """The MLP on a partition of the pictures."""
    settings = {**_PICTURES, "model": "mlp", "eta": 0.2 if clients is ALL else 0.1, "partition": partition, **clients}
    return BenchTask(name, title, "demo", rounds, settings)


def _logistic(name: str, title: str, function: str, rounds: int, clients: dict[str, Any]) -> BenchTask:
    settings = {**_LOCAL, "eta": 0.1 if clients is ALL else 0.05, **clients}
    return BenchTask(name, title, f"{LOGISTIC}:{function}", rounds, settings)


def _cnn(partition: str) -> BenchTask:
    settings = {**_PICTURES, "model": "cnn", "eta": 0.1, "tau": 10, "batch_size": 16, **ALL}
    return BenchTask(
        f"cnn-{partition}", f"CNN, {partition}, 8 clients", "demo", 60,
        {**settings, "partition": PARTITIONS[partition]},
    )  # fmt: skip


def _every() -> list[BenchTask]:
    found = []
    for key, partition in PARTITIONS.items():
        function = {"sorted": "sorted_labels"}.get(key, key)
        found += [
            _logistic(f"logistic-{key}", f"logistic regression, {key}, 8 clients", function, 50, ALL),
            mlp(f"mlp-{key}", f"MLP, {key}, 8 clients", partition, 60, ALL),
            _logistic(f"logistic-{key}-5-of-100", f"logistic regression, {key}, 5 of 100", function, 90, _SOME),
            mlp(f"mlp-{key}-5-of-100", f"MLP, {key}, 5 of 100", partition, 100, _SOME),
        ]
    return [*found, *(_cnn(partition) for partition in PARTITIONS)]


TASKS = {task.name: task for task in _every()}
