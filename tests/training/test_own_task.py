"""A task of the user's own: read, held to what training needs, and refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import adaquantfl as aq
from adaquantfl.runs.config import Config, config_of, load_config
from adaquantfl.training.own_data import Joined, examples_of
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import Trainer
from support.own_tasks import CLASSIFIER, REGRESSION, written

GOOD = """
import torch
from torch import nn
from adaquantfl import OwnTask

def part(rows=8, columns=3):
    return torch.randn(rows, columns), torch.randn(rows, 1)

def task(clients, seed):
    return OwnTask(
        model=lambda: nn.Linear(3, 1),
        loss=nn.functional.mse_loss,
        train=[part() for _ in range(clients)],
    )
"""


def config_for(path: Path, function: str = "task", **changes: object) -> Config:
    return load_config(f"{path}:{function}", {"clients": 3, "batch_size": 8, "workers": 1, **changes})


def test_a_regression_has_no_classes_and_no_accuracy_but_a_test_loss(tmp_path: Path) -> None:
    task = Task.of(config_for(written(tmp_path, REGRESSION)))
    assert [len(part) for part in task.parts] == [20, 50, 80]
    assert task.accuracy is None
    x, y = task.train.batch(task.parts[1][:4])
    assert (x.dtype, y.dtype, x.shape, y.shape) == (torch.float32, torch.float32, (4, 6), (4, 1))


def test_a_classifier_has_an_accuracy_and_batches_of_several_clients(tmp_path: Path) -> None:
    task = Task.of(config_for(written(tmp_path, CLASSIFIER), "bag"))
    assert [len(part) for part in task.parts] == [30, 31, 32]
    assert task.accuracy is not None
    x, y = task.train.batch(np.array([0, 45, 90, 1]))  # of three clients
    assert x.dtype == y.dtype == torch.int64
    alone = [task.train.batch(np.array([index])) for index in (0, 45, 90, 1)]
    assert torch.equal(x, torch.cat([one[0] for one in alone]))
    assert torch.equal(y, torch.cat([one[1] for one in alone]))


def test_the_same_seed_gives_the_same_task_and_leaves_global_generators_alone(tmp_path: Path) -> None:
    path = written(tmp_path, REGRESSION)

    def weights_and_data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        task = Task.of(config_for(path, seed=seed))
        return next(task.build().parameters()).detach(), task.train.batch(task.parts[2])[0]

    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = weights_and_data(5)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert all(map(torch.equal, weights_and_data(5), first))
    assert not any(map(torch.equal, weights_and_data(6), first))


def test_dropout_depends_on_seed_round_and_client_alone(tmp_path: Path) -> None:
    config = config_for(written(tmp_path, REGRESSION))
    trainer = Trainer(config, Task.of(config))
    start = trainer.weights()

    def trained(client: int, round: int) -> bytes:
        weights, _ = trainer.train(client, start, round, 0.1)
        return b"".join(array.tobytes() for array in weights.values())

    torch.manual_seed(1)
    first = trained(1, 2)
    torch.manual_seed(2)
    others = trained(0, 2), trained(1, 3)
    assert trained(1, 2) == first not in others


def test_frozen_parameters_are_not_sent(tmp_path: Path) -> None:
    frozen = GOOD.replace("nn.Linear(3, 1)", "nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 1))")
    config = config_for(written(tmp_path, frozen))
    trainer = Trainer(config, Task.of(config))
    before, (after, _) = trainer.weights(), trainer.train(0, trainer.weights(), 0, 0.1)
    assert {name: array.size for name, array in after.items()} == {"1.weight": 4, "1.bias": 1}
    assert not np.array_equal(before["1.weight"], after["1.weight"])


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, "COLUMNS = 3\n", "neighbour_of_mine.py")
    Task.of(config_for(written(tmp_path, "from neighbour_of_mine import COLUMNS\n" + GOOD)))


FAULTS = {  # what is replaced in GOOD, by what, and the words of the sentence
    "syntax": ("def part(", "def part((", "cannot be run: SyntaxError: .*line 6"),
    "no such function": ("def task(", "def tasks(", "no function named 'task'.*Did you mean 'tasks'"),
    "it raises": (
        "    return OwnTask(",
        "    1 / 0\n    return OwnTask(",
        r"seed=0\): ZeroDivisionError.*line 10: 1 / 0",
    ),
    "returns nothing": ("    return OwnTask(", "    OwnTask(", "returned nothing, expected an adaquantfl.OwnTask"),
    "too few clients": ("range(clients)", "range(2)", "data of 2 clients, but clients = 3.*--set clients=2"),
    "lengths differ": ("torch.randn(rows, 1)", "torch.randn(rows + 1, 1)", "The data cannot be read.*Size mismatch"),
    "empty client": ("part() for _ in", "part(8 * (_ != 1)) for _ in", "The data of client 1 is empty"),
    "a loader": ("part() for", "torch.utils.data.DataLoader([part()]) for", "is a DataLoader.*loader.dataset"),
    "items are no pairs": ("part() for", "part()[0] for", "Item 0 of the data of client 0 is a Tensor"),
    "model is no module": ("lambda: nn.Linear(3, 1)", "lambda: 3", "model gave a int"),
    "lazy": ("nn.Linear(3, 1)", "nn.LazyLinear(1)", "lazy layers"),
    "shapes differ": (
        "part() for _ in",
        "torch.utils.data.TensorDataset(torch.randn(8, 3 + _), torch.randn(8, 1)) for _ in",
        r"inputs of client 1 are float32 of shape \(1, 4\)",
    ),
    "no parameters": ("nn.Linear(3, 1)", "nn.Identity()", "nothing to train"),
    "model misfits": ("nn.Linear(3, 1)", "nn.Linear(4, 1)", r"failed on a batch of inputs that are .*\(1, 3\)"),
    "loss is a vector": (
        "nn.functional.mse_loss",
        "nn.MSELoss(reduction='none')",
        r"\(8, 1\).*the mean over the batch",
    ),
    "loss is NaN": ("nn.functional.mse_loss", "lambda o, y: o.mean() * float('nan')", "is nan before the first step"),
    "accuracy is a number": (
        "    )\n",
        "        test=part(), accuracy=lambda o, y: 0.5,\n    )\n",
        "accuracy returned a float, expected 8 bools",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_file_gets_a_sentence(name: str, tmp_path: Path) -> None:
    old, new, words = FAULTS[name]
    assert old in GOOD
    with pytest.raises(aq.TaskError, match=words) as refused:
        Task.of(config_for(written(tmp_path, GOOD.replace(old, new))))
    assert str(refused.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere.py:task", "There is no file .*nowhere.py"),
        ("mine.py:a b", "expected a Python file and a function"),
        (".", "There is no preset named"),
    ],
)
def test_what_cannot_name_a_task_is_refused(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, GOOD)
    with pytest.raises(aq.AdaQuantError, match=words):
        load_config(text)


def test_a_task_goes_without_dataset_model_and_partition(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    for key in ("dataset", "model", "partition"):
        with pytest.raises(aq.ConfigError, match=f"{key} = 'iid' does not go with task.*leave {key} away"):
            config_for(path, **{key: "iid"})
    with pytest.raises(aq.ConfigError, match="leave dataset, model, partition away"):
        load_config("demo", {"task": str(path), "partition": "iid"})
    config = config_for(path)
    assert {"dataset", "model", "partition"} & config.to_dict().keys() == set()
    assert config_of(config.to_dict()) == config
    assert {"task", "task_sha256"} & Config().to_dict().keys() == set()


def test_a_toml_file_names_a_task_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    path = written(folder, GOOD)
    (folder / "mine.toml").write_text('task = "mine.py"\nclients = 3\n')
    config = load_config(folder / "mine.toml", {"batch_size": 8, "workers": 1})
    assert config == config_for(path)
    other = written(tmp_path, GOOD, "other.py")
    monkeypatch.chdir(tmp_path)
    assert load_config(folder / "mine.toml", {"task": "other.py:task"}).task == f"{other}:task"  # seen from here


def test_pairs_data_sets_and_lists_are_the_same_examples() -> None:
    x, y = torch.arange(12).reshape(6, 2).to(torch.uint8), np.linspace(0, 1, 6)
    rows = examples_of((x, y), "the rows")
    items = examples_of([(x[i].numpy(), y[i]) for i in range(6)], "the items")
    both = Joined([rows, items])
    assert len(both) == 12
    for indices in ([3, 1], [9, 7]):
        taken = both.batch(np.array(indices))
        assert taken[0].tolist() == [[6, 7], [2, 3]]
        assert (taken[0].dtype, taken[1].dtype) == (torch.int64, torch.float32)
    assert both.batch(np.array([9, 1, 3, 7]))[0][:, 0].tolist() == [6, 2, 6, 2]
