"""A user's task held to what training needs, before the first round: one batch goes all the way through."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import TaskError
from .chance import repeatable
from .task import Examples, Indices, Task

Blame = Callable[[str], AbstractContextManager[None]]  # makes what the user's code raises a sentence


def check(task: Task, batch_size: int, blame: Blame) -> None:
    """Refuse a task that cannot be trained."""
    with repeatable(0):
        _check_shapes(task, blame)
        net = task.build()
        _check_parameters(net)
        batch = np.resize(task.parts[0], batch_size)
        inputs, targets, outputs = _through(net.train(), task.train, batch, blame)
        _check_loss(task, inputs, targets, outputs, blame)
        if task.test is not None:
            with torch.no_grad():
                sample = np.arange(min(len(task.test), batch_size))
                _, targets, outputs = _through(net.eval(), task.test, sample, blame)
                _check_accuracy(task, targets, outputs, blame)


def _check_shapes(task: Task, blame: Blame) -> None:
    """The first examples of all clients must look alike."""
    with blame("The data cannot be read"):
        firsts = [task.train.batch(part[:1]) for part in task.parts]
    for client, example in enumerate(firsts):
        for what, value, expected in zip(("inputs", "targets"), example, firsts[0], strict=True):
            if value.shape != expected.shape or value.dtype != expected.dtype:
                raise TaskError(
                    f"The {what} of client {client} are {_look(value)}, those of client 0 {_look(expected)}: "
                    "expected the same shape and kind from all clients."
                )


def _check_parameters(net: nn.Module) -> None:
    parameters = list(net.parameters())
    if any(nn.parameter.is_lazy(p) for p in parameters):
        raise TaskError("The model has lazy layers without a shape: pass one batch through it before you return it.")
    if not any(p.requires_grad for p in parameters):
        why = "all of its parameters have requires_grad = False" if parameters else "it has no parameters"
        raise TaskError(f"The model has nothing to train: {why}.")
    if other := [p.dtype for p in parameters if p.dtype != torch.float32]:
        raise TaskError(f"The model has a parameter of {other[0]}, expected float32 throughout.")


def _through(net: nn.Module, data: Examples, indices: Indices, blame: Blame) -> tuple[Tensor, Tensor, Any]:
    with blame("The data cannot be read"):
        inputs, targets = data.batch(indices)
    with blame(f"The model failed on a batch of inputs that are {_look(inputs[:1])}"):
        return inputs, targets, net(inputs)


def _check_loss(task: Task, inputs: Tensor, targets: Tensor, outputs: Any, blame: Blame) -> None:
    seen = f"outputs that are {_look(outputs)} and targets that are {_look(targets)}"
    with blame(f"The loss failed on {seen}"):
        loss = task.loss(outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        look = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise TaskError(
            f"The loss returned {look} for {seen}, expected a tensor with one number: the mean over the batch."
        )
    if not torch.isfinite(loss).all():
        bad = next((what for what, values in (("inputs", inputs), ("targets", targets)) if not _finite(values)), None)
        why = (
            f"the {bad} of client 0 have NaN or infinite values"
            if bad
            else "its data is finite, but the outputs or the loss are not"
        )
        raise TaskError(
            f"The loss is {loss.item()} before the first step: {why}. Look at the data and the model's start."
        )
    if not loss.requires_grad:
        raise TaskError("The loss does not depend on the model's parameters: was it detached, or turned into a number?")
    with blame("The loss has no gradient"):
        loss.backward()  # type: ignore[no-untyped-call]


def _check_accuracy(task: Task, targets: Tensor, outputs: Any, blame: Blame) -> None:
    if task.accuracy is None:
        return
    with blame(f"accuracy failed on outputs that are {_look(outputs)} and targets that are {_look(targets)}"):
        right = task.accuracy(outputs, targets)
    if not isinstance(right, Tensor) or right.dtype != torch.bool or right.shape != (len(targets),):
        look = _look(right) if isinstance(right, Tensor) else f"a {type(right).__name__}"
        raise TaskError(
            f"accuracy returned {look}, expected {len(targets)} bools: whether each example of the batch is right."
        )


def _finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())


def _look(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
