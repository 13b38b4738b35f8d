"""What is trained: 8 of 8 clients and 5 of 100, three partitions; and the task on which settings are tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adaquantfl.runs.tasks import LOGISTIC

ROOT = Path(__file__).parents[3]
LANGUAGE = ROOT / "examples" / "own_task" / "next_character.toml"
PARTITIONS = {"iid": "iid", "dirichlet": "dirichlet(0.3)", "sorted": "sorted"}
MORE_ROUNDS = 1.2  # than float32, for every other method


@dataclass(frozen=True)
class FloorTask:
    """A task. source: as `load_config` takes it. rounds: of float32.

    every: methods are compared at multiples of so many rounds, because some were evaluated only there.
    """

    name: str
    title: str
    source: str
    rounds: int
    settings: dict[str, Any] = field(default_factory=dict)
    cheap: bool = False  # whether it belongs to what is run without being named
    measure: str = "accuracy"  # or "loss", on the test set
    every: int = 2


_LOCAL = {"tau": 5, "batch_size": 32, "loss_samples": 64, "workers": 1, "evaluate_every": 1}
_PICTURES = {**_LOCAL, "dataset": "fashion-mnist-sample"}
_ALL: dict[str, Any] = {"clients": 8}
_SOME: dict[str, Any] = {
    "clients": 100, "clients_per_round": 5, "loss": "round", "loss_smoothing": 0.9,
}  # fmt: skip


def _every_of(clients: dict[str, Any]) -> int:
    return 2 if clients is _ALL else 4


def _mlp(name: str, title: str, partition: str, rounds: int, clients: dict[str, Any]) -> FloorTask:
    settings = {**_PICTURES, "model": "mlp", "eta": 0.2 if clients is _ALL else 0.1, "partition": partition, **clients}
    return FloorTask(name, title, "demo", rounds, settings, cheap=True, every=_every_of(clients))


def _logistic(name: str, title: str, function: str, rounds: int, clients: dict[str, Any]) -> FloorTask:
    settings = {**_LOCAL, "eta": 0.1 if clients is _ALL else 0.05, **clients}
    return FloorTask(name, title, f"{LOGISTIC}:{function}", rounds, settings, cheap=True, every=_every_of(clients))


def _cnn(partition: str) -> FloorTask:
    settings = {**_PICTURES, "model": "cnn", "eta": 0.1, "tau": 10, "batch_size": 16, **_ALL}
    return FloorTask(
        f"cnn-{partition}", f"CNN, {partition}, 8 clients", "demo", 60,
        {**settings, "partition": PARTITIONS[partition]},
    )  # fmt: skip


def _every() -> list[FloorTask]:
    found = []
    for key, partition in PARTITIONS.items():
        function = {"sorted": "sorted_labels"}.get(key, key)
        found += [
            _logistic(f"logistic-{key}", f"logistic regression, {key}, 8 clients", function, 50, _ALL),
            _mlp(f"mlp-{key}", f"MLP, {key}, 8 clients", partition, 60, _ALL),
            _logistic(f"logistic-{key}-5-of-100", f"logistic regression, {key}, 5 of 100", function, 90, _SOME),
            _mlp(f"mlp-{key}-5-of-100", f"MLP, {key}, 5 of 100", partition, 100, _SOME),
        ]
    resnet = {"workers": 1, "evaluate_every": 1, "target_loss": 0.0}
    return [
        *found,
        *(_cnn(partition) for partition in PARTITIONS),
        FloorTask(
            "language",
            "language model, 4 clients",
            str(LANGUAGE),
            100,
            {"workers": 1, "evaluate_every": 1},
            measure="loss",
        ),
        FloorTask("resnet18-iid", "ResNet-18, iid, 4 clients", "cifar-resnet18-iid", 24, resnet),
    ]


TASKS = {task.name: task for task in _every()}
# Settings are tried on a partition and a seed that no judged task has.
TRIAL = _mlp("trial", "MLP, Dirichlet 1.0, 8 clients", "dirichlet(1.0)", 60, _ALL)
TRIAL_SEED = 100
