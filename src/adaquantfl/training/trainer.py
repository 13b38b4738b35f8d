"""Local training: tau steps from given weights (eq. 2), and losses of given weights. PyTorch lives here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..errors import ConfigError
from ..protocol.arrays import AnyArray, Weights
from ..quantizers.streams import stream_key
from .chance import repeatable
from .settings import Settings
from .task import Examples, Indices, Task

Arrays = Mapping[str, AnyArray]

_BATCHES = 1  # sub-stream of a client's key that draws its mini-batches; the quantizer uses the key itself
_LOSS_SAMPLE = -1  # in place of a round: the sample on which "full" evaluates the loss
_EVERYBODY = -1  # in place of a client
_EVALUATION_BATCH = 256
_OTHERWISE = "set device = 'cpu', or install the build of PyTorch that has its driver."


class Trainer:
    """Trains and evaluates for any of the clients, one at a time, with one model in memory.

    Weights come and go as named arrays: the parameters that are trained, and the buffers. Convolution kernels have
    their input channels last.
    """

    def __init__(self, config: Settings, task: Task) -> None:
        self.config = config
        self.task = task
        self.examples = tuple(len(part) for part in task.parts)  # m_i of every client
        self.device = find_device(config.device)
        self._net = task.build().to(self.device)
        self._loss = task.loss.to(self.device) if isinstance(task.loss, torch.nn.Module) else task.loss
        trained = {
            name: p for name, p in self._net.named_parameters() if p.requires_grad
        }  # others are equal everywhere
        self.buffer_names = tuple(name for name, _ in self._net.named_buffers())  # not trained, and not to be quantized
        self._tensors = {name: _lying(p) for name, p in trained.items()} | dict(self._net.named_buffers())
        self._optimizer = _optimizer(config, list(trained.values()))
        self._pool: Indices | None = None

    def weights(self) -> dict[str, AnyArray]:
        """The present weights; w_0 before anything was trained."""
        return {name: tensor.cpu().numpy().copy() for name, tensor in self._tensors.items()}

    def state_dict(self, weights: Weights) -> dict[str, torch.Tensor]:
        """These weights as the model's own state dict: tensors in their shapes, with those that are not trained."""
        assert isinstance(weights, Mapping)
        self._load(weights)
        state = {name: value for name, value in self._net.state_dict().items() if isinstance(value, torch.Tensor)}
        return {name: value.cpu().clone(memory_format=torch.contiguous_format) for name, value in state.items()}

    def train(self, client: int, weights: Arrays, round: int, eta: float) -> tuple[dict[str, AnyArray], float]:
        """One client's round: tau steps from these weights. Returns the trained weights and the mean loss."""
        with one_thread():
            self._load(weights)
            key = stream_key(self.config.seed, round, client)
            with repeatable(key):  # layers such as dropout
                if self.device.type != "cpu":  # the CPU's generator is the business of `repeatable`
                    getattr(torch, self.device.type).manual_seed(key)
                loss = self._local_steps(client, round, eta)
            trained = self.weights()
            return {name: array.reshape(np.shape(weights[name])) for name, array in trained.items()}, loss

    def loss(self, client: int, weights: Arrays) -> float:
        """f_i(w) on the client's data, or on a fixed sample of it."""
        part = self.task.parts[client]
        size = self.config.loss_samples
        if 0 < size < len(part):
            part = self._rng(_LOSS_SAMPLE, client).choice(part, size, replace=False)
        return self._total_loss(weights, self.task.train, part) / len(part)

    def losses(self, start: int, stop: int, weights: Arrays) -> float:
        """The sum of the losses on the samples start to stop of all clients' data, in an order fixed for the run."""
        if self._pool is None:
            everything = np.concatenate(self.task.parts)
            self._pool = self._rng(_LOSS_SAMPLE, _EVERYBODY).permutation(everything)
        return self._total_loss(weights, self.task.train, self._pool[start:stop])

    def correct(self, start: int, stop: int, weights: Arrays) -> int:
        """How many of the test samples start to stop the model gets right."""
        test, accuracy = self.task.test, self.task.accuracy
        assert test is not None
        assert accuracy is not None
        return int(self._evaluate(weights, test, np.arange(start, stop), lambda output, y: accuracy(output, y).sum()))

    def test_losses(self, start: int, stop: int, weights: Arrays) -> float:
        """The sum of the losses on the test samples start to stop: the measure of tasks without an accuracy."""
        assert self.task.test is not None
        return self._total_loss(weights, self.task.test, np.arange(start, stop))

    def _local_steps(self, client: int, round: int, eta: float) -> float:
        self._net.train()
        self._optimizer.state.clear()  # of the client before
        self._optimizer.param_groups[0]["lr"] = eta
        total = 0.0
        for batch in self._batches(client, round):
            total += self._step(*self.task.train.batch(batch)).item()
        return total / self.config.tau

    def _step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step on a mini-batch; returns its loss."""
        self._optimizer.zero_grad()
        loss = self._loss(self._net(self._layout(x)), y.to(self.device))
        loss.backward()
        self._optimizer.step()
        return loss

    def _batches(self, client: int, round: int) -> Iterator[Indices]:
        """tau mini-batches, drawn without replacement until the client's data is used up, then again."""
        part, size = self.task.parts[client], self.config.batch_size
        rng = self._rng(round, client)
        needed = self.config.tau * size
        order = np.concatenate([rng.permutation(len(part)) for _ in range(-(-needed // len(part)))])
        for step in range(self.config.tau):
            yield part[order[step * size : (step + 1) * size]]

    def _rng(self, round: int, client: int) -> np.random.Generator:
        key = np.array([stream_key(self.config.seed, round, client), _BATCHES], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _total_loss(self, weights: Arrays, data: Examples, indices: Indices) -> float:
        loss = self._loss
        return self._evaluate(weights, data, indices, lambda output, y: loss(output, y).item() * len(y))

    @torch.no_grad()
    def _evaluate(
        self, weights: Arrays, data: Examples, indices: Indices, measure: Callable[[Any, torch.Tensor], Any]
    ) -> float:
        """The sum of a measure over batches of these examples."""
        with one_thread(), repeatable(self.config.seed):
            self._load(weights)
            self._net.eval()
            total = 0.0
            for start in range(0, len(indices), _EVALUATION_BATCH):
                x, y = data.batch(indices[start : start + _EVALUATION_BATCH])
                total += float(measure(self._net(self._layout(x)), y.to(self.device)))
            return total

    def _load(self, weights: Arrays) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(torch.from_numpy(np.array(weights[name])).reshape(tensor.shape))

    def _layout(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.device)
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def find_device(name: str) -> torch.device:
    """The device of this name; ConfigError where this host has none.

    >>> find_device("cpu")
    device(type='cpu')
    """
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ConfigError(f"device = {name!r}, but PyTorch finds {count} CUDA devices on this host: {_OTHERWISE}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device = {name!r}, but PyTorch finds no Apple GPU on this host: {_OTHERWISE}")
    return device


def _optimizer(config: Settings, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """One optimizer for all clients that a process plays; its state is new in each client's round.

    So a round depends on the model, the client's data and the seed only, on every engine and after an interruption.
    """
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=config.eta, weight_decay=config.weight_decay, foreach=True)
    momentum, decay = config.momentum, config.weight_decay
    return torch.optim.SGD(parameters, lr=config.eta, momentum=momentum, weight_decay=decay, foreach=True)


def _lying(p: torch.nn.Parameter) -> torch.Tensor:
    """The parameter's memory, as it travels. Convolution kernels lie channels last, where PyTorch is fastest."""
    if p.ndim != 4:
        return p.data
    lying = p.data.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    p.data = lying.permute(0, 3, 1, 2)
    return lying


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: its sums depend on the number of threads, and results must not depend on workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
