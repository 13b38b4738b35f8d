"""What is trained: the tasks of the bench, and two that need other data; and the task on which settings are tried."""

from __future__ import annotations

from pathlib import Path

from adaquantfl.bench import tasks
from adaquantfl.bench.tasks import ALL, BenchTask, mlp

ROOT = Path(__file__).parents[3]
LANGUAGE = ROOT / "examples" / "own_task" / "next_character.toml"
_EVERY = {"workers": 1, "evaluate_every": 1}

TASKS = {
    **tasks.TASKS,
    "language": BenchTask("language", "language model, 4 clients", str(LANGUAGE), 100, _EVERY),
    "resnet18-iid": BenchTask(
        "resnet18-iid",
        "ResNet-18, iid, 4 clients",
        "cifar-resnet18-iid",
        24,
        {**_EVERY, "target_loss": 0.0, "scope": "tensor"},
    ),
}
# Settings are tried on a partition and a seed that no judged task has.
TRIAL = mlp("trial", "MLP, Dirichlet 1.0, 8 clients", "dirichlet(1.0)", 60, ALL)
TRIAL_SEED = 100


def takes_seconds(task: BenchTask) -> bool:
    """Whether a run of it takes seconds."""
    return task.name.startswith(("logistic-", "mlp-"))


def by_accuracy(task: BenchTask) -> bool:
    """Whether the test set is measured by its accuracy; otherwise by its loss."""
    return task.name != "language"


def compared_every(task: BenchTask) -> int:
    """Methods are compared at multiples of this many rounds, because some were evaluated only there."""
    return 4 if "clients_per_round" in task.settings else 2
