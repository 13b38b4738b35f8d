"""From FILE.py:FUNCTION to a task: run the user's file, call the function, and hold what it returns to what we need.

Whatever is wrong with it is a TaskError that says where. All processes of a run come here, and must get the same task.
So the file is held to the digest in the configuration, and the function is called with all generators seeded.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import TaskError
from ..names import unknown
from .chance import repeatable
from .own import OwnTask
from .own_data import Items, Joined, examples_of
from .own_files import OwnFile, blamed
from .settings import Settings
from .task import Examples, Indices, Task, largest_is_right


def load_own(config: Settings) -> Task:
    """The task that `config.task` names, checked."""
    file = OwnFile.of(config.task)
    with repeatable(config.seed):
        function = _function(file, config.task_sha256)
        with blamed(file.path, f"{file.path.name} failed in {file.name}(clients={config.clients}, seed={config.seed})"):
            own = function(config.clients, config.seed)
    if not isinstance(own, OwnTask):
        raise TaskError(
            f"{file.name} in {file.path} returned {_look(own)}, expected an adaquantfl.OwnTask: end it with "
            "`return OwnTask(model=..., loss=..., train=[...])`."
        )
    with blamed(file.path, "The data cannot be read"):
        train = Joined(_clients(own, file, config.clients))
        test = None if own.test is None else examples_of(own.test, "the test data")
    task = Task(
        build=lambda: _build(own, file, config.seed),
        loss=own.loss,
        train=train,
        test=test,
        parts=train.parts(),
        accuracy=own.accuracy or (largest_is_right if own.classes else None),
    )
    _check(task, config.batch_size, file.path)
    return task


def _function(file: OwnFile, sha256: str) -> Callable[..., Any]:
    module = file.run(file.checked(sha256))
    function = getattr(module, file.name, None)
    if callable(function):
        return function  # type: ignore[no-any-return] # whatever it is, it can be called
    there = [name for name, _ in inspect.getmembers(module, inspect.isfunction) if not name.startswith("_")]
    raise TaskError(f"{file.path} does not give the task. {unknown('function', file.name, there)}")


def _clients(own: OwnTask, file: OwnFile, clients: int) -> list[Items]:
    if not isinstance(own.train, list | tuple):
        raise TaskError(
            f"train is {_look(own.train)}, expected a list with the data of each client. "
            "torch.utils.data.random_split cuts a data set into parts."
        )
    if len(own.train) != clients:
        raise TaskError(
            f"{file.name} in {file.path} gave the data of {len(own.train)} clients, but clients = {clients}. "
            f"Its first argument says how many are wanted; or --set clients={len(own.train)}."
        )
    return [examples_of(data, f"the data of client {client}") for client, data in enumerate(own.train)]


def _build(own: OwnTask, file: OwnFile, seed: int) -> nn.Module:
    if isinstance(own.model, nn.Module):
        model = copy.deepcopy(own.model)
    else:
        with repeatable(seed), blamed(file.path, "The model cannot be built"):
            model = own.model()
    if not isinstance(model, nn.Module):
        raise TaskError(f"model gave {_look(model)}, expected a torch.nn.Module, or a function that returns one.")
    return model.cpu().float()


def _check(task: Task, batch_size: int, path: Path) -> None:
    """Refuse a task that cannot be trained, before the first round: one batch goes all the way through."""
    with repeatable(0):
        _check_shapes(task, path)
        net = task.build()
        if any(map(nn.parameter.is_lazy, net.parameters())):
            raise TaskError("The model has lazy layers: pass one batch through it before you return it.")
        if not any(p.requires_grad for p in net.parameters()):
            raise TaskError("The model has nothing to train: no parameter has requires_grad = True.")
        batch = np.resize(task.parts[0], batch_size)
        targets, outputs = _through(net.train(), task.train, batch, path)
        _check_loss(task, targets, outputs, path)
        if task.test is not None:
            with torch.no_grad():
                sample = np.arange(min(len(task.test), batch_size))
                targets, outputs = _through(net.eval(), task.test, sample, path)
                _check_accuracy(task, targets, outputs, path)


def _check_shapes(task: Task, path: Path) -> None:
    """The first examples of all clients must look alike."""
    with blamed(path, "The data cannot be read"):
        firsts = [task.train.batch(part[:1]) for part in task.parts]
    for client, example in enumerate(firsts):
        for what, value, expected in zip(("inputs", "targets"), example, firsts[0], strict=True):
            if value.shape != expected.shape or value.dtype != expected.dtype:
                raise TaskError(
                    f"The {what} of client {client} are {_look(value)}, those of client 0 {_look(expected)}: "
                    "expected the same shape and kind from all clients."
                )


def _through(net: nn.Module, data: Examples, indices: Indices, path: Path) -> tuple[Tensor, Any]:
    with blamed(path, "The data cannot be read"):
        inputs, targets = data.batch(indices)
    with blamed(path, f"The model failed on a batch of inputs that are {_look(inputs[:1])}"):
        return targets, net(inputs)


def _check_loss(task: Task, targets: Tensor, outputs: Any, path: Path) -> None:
    seen = f"outputs that are {_look(outputs)} and targets that are {_look(targets)}"
    with blamed(path, f"The loss failed on {seen}"):
        loss = task.loss(outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise TaskError(
            f"The loss returned {_look(loss)} for {seen}, expected a tensor with one number: the mean over the batch."
        )
    if not torch.isfinite(loss).all():
        raise TaskError(f"The loss is {loss.item()} before the first step: look at the data and the model's start.")
    with blamed(path, "The loss has no gradient"):
        loss.backward()  # type: ignore[no-untyped-call]


def _check_accuracy(task: Task, targets: Tensor, outputs: Any, path: Path) -> None:
    if task.accuracy is None:
        return
    with blamed(path, f"accuracy failed on outputs that are {_look(outputs)} and targets that are {_look(targets)}"):
        right = task.accuracy(outputs, targets)
    if not isinstance(right, Tensor) or right.dtype != torch.bool or right.shape != (len(targets),):
        raise TaskError(
            f"accuracy returned {_look(right)}, expected {len(targets)} bools: whether each example of the batch is "
            "right."
        )


def _look(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "nothing" if value is None else f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
