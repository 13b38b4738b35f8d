"""DeComFL (Li, Ying, Liu, Dong, Yang, ICLR 2025): zeroth-order steps, of which only scalars and seeds travel.

In each local step a client draws P random directions from a seed that all of them share, and measures how much its loss
changes along each. It moves by these slopes and sends them. The server sends the mean slope of each step and direction,
from which every client makes the same new model. A direction takes a forward pass more, and there is no backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import adaquantfl as aq
from adaquantfl.bench.loop import Line
from adaquantfl.runs.config import Config
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import one_thread

DIRECTIONS, STEP = 10, 1e-3  # P and mu; the authors' P is 5 to 10, and their mu 0.001
_EVALUATED, _DIRECTIONS_OF = 500, -1  # examples at a time; in place of a client
MORE_ROUNDS = 20  # times float32's


class Net:
    """The task's model as a function of one vector."""

    def __init__(self, config: Config) -> None:
        self.task, self.config = Task.of(config), config
        self._net = self.task.build()
        self.start = parameters_to_vector(self._net.parameters()).detach()

    def at(self, vector: torch.Tensor) -> torch.nn.Module:
        vector_to_parameters(vector, self._net.parameters())
        return self._net

    def batches(self, client: int, round: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        part, size = self.task.parts[client], self.config.batch_size
        rng = np.random.default_rng(aq.stream_key(self.config.seed, round, client))
        order = np.resize(rng.permutation(part), self.config.tau * size)
        for step in range(self.config.tau):
            yield self.task.train.batch(order[step * size : (step + 1) * size])

    def accuracy(self, vector: torch.Tensor) -> float:
        net, test, right = self.at(vector).eval(), self.task.test, 0.0
        assert test is not None
        assert self.task.accuracy is not None
        for start in range(0, len(test), _EVALUATED):
            x, y = test.batch(np.arange(start, min(start + _EVALUATED, len(test))))
            right += float(self.task.accuracy(net(x), y).sum())
        return right / len(test)


def rounds(config: Config, eta: float, every: int) -> Iterator[Line]:
    """Every round, evaluated after each `every` of them."""
    net = Net(config)
    sizes = np.array([len(part) for part in net.task.parts])
    weights, model = sizes / sizes.sum(), net.start
    slopes = config.tau * DIRECTIONS
    each, passes = 4 * slopes + 4 * config.tau, config.tau * (DIRECTIONS + 1) * config.batch_size
    for round in range(config.rounds):
        with one_thread(), torch.no_grad():
            generator = torch.Generator().manual_seed(aq.stream_key(config.seed, round, _DIRECTIONS_OF) >> 1)
            directions = torch.randn(config.tau, DIRECTIONS, len(model), generator=generator)
            mean = torch.zeros(config.tau, DIRECTIONS)
            for client, weight in enumerate(weights):
                mean += float(weight) * _slopes(net, model, directions, net.batches(client, round), eta)
            model = model - eta / DIRECTIONS * torch.einsum("kp,kpd->d", mean, directions)
            due = (round + 1) % every == 0 or round + 1 == config.rounds
            value = net.accuracy(model) if due else None
        sent = (round + 1) * len(weights)
        yield Line(round + 1, value, 4 * slopes * sent, each * sent + 4 * len(model) * len(weights), passes * sent, 0.0)


def _slopes(
    net: Net,
    model: torch.Tensor,
    directions: torch.Tensor,
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
    eta: float,
) -> torch.Tensor:
    """Return what a client sends: the slope of its loss along each direction of each of its steps."""
    found, own = torch.zeros(directions.shape[:2]), model
    for step, (x, y) in enumerate(batches):
        here = net.task.loss(net.at(own).train()(x), y)
        for number, direction in enumerate(directions[step]):
            found[step, number] = (net.task.loss(net.at(own + STEP * direction)(x), y) - here) / STEP
        own = own - eta / DIRECTIONS * found[step] @ directions[step]
    return found


def decomfl(eta: float, every: int = 10) -> Callable[[Config], Iterator[Line]]:
    """The rounds of the method with this learning rate."""
    return lambda config: rounds(config, eta, every)
