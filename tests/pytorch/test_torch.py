"""The hook and the outer step in one process: error feedback loses nothing, and steps are those of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import adaquantfl as aq
from adaquantfl.torch import GradientHook, OuterStep, quantize_hook


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def flat(net: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy().copy()


def some_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))


@pytest.mark.usefixtures("alone")
def test_what_the_hook_leaves_out_comes_later() -> None:
    """Over steps with the same batch, the sum of the gradients that arrive approaches that of the true ones."""
    net, x = some_net(), torch.randn(16, 20, generator=torch.Generator().manual_seed(0))
    truth = some_net()
    truth(x).square().sum().backward()
    expected = np.concatenate([p.grad.numpy().ravel() for p in truth.parameters() if p.grad is not None])
    model = nn.parallel.DistributedDataParallel(net)
    hook = GradientHook(error=0.7)
    model.register_comm_hook(hook, quantize_hook)
    total, errors = np.zeros_like(expected), []
    for step in range(1, 31):
        model.zero_grad()
        model(x).square().sum().backward()
        total += np.concatenate([p.grad.numpy().ravel() for p in net.parameters() if p.grad is not None])
        errors.append(np.linalg.norm(total / step - expected) / np.linalg.norm(expected))
    assert errors[0] > 0.3, "the levels are coarse"
    assert errors[-1] < 0.1
    assert 0 < hook.bytes_sent < 30 * expected.nbytes / 4


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("step", ["sum", aq.Nesterov(eta=0.5, beta=0.8), "adam"])
def test_an_outer_step_is_the_servers_step_of_what_was_sent(step: Any) -> None:
    net, rng = some_net(), np.random.default_rng(0)
    outer, start = OuterStep(net.parameters(), step, error=0.001), flat(net)
    reference = {"sum": None, "adam": aq.Adam()}[step] if isinstance(step, str) else step
    state, expected = (reference.init(len(start)) if reference else {}), start
    for _ in range(3):
        move = rng.normal(0, 0.01, len(start)).astype(np.float32)
        nn.utils.vector_to_parameters(torch.from_numpy(flat(net) + move), net.parameters())
        assert outer.step() > 0
        update, state = reference.apply(move, state) if reference else (move, state)
        expected = expected + update
    moved = np.linalg.norm(expected - start)
    assert np.linalg.norm(flat(net) - expected) < 0.1 * moved


@pytest.mark.usefixtures("alone")
def test_an_outer_step_resumes_exactly() -> None:
    def train(net: nn.Module, outer: OuterStep, numbers: range) -> None:
        for number in numbers:
            move = np.random.default_rng(number).normal(0, 0.01, len(flat(net))).astype(np.float32)
            nn.utils.vector_to_parameters(torch.from_numpy(flat(net) + move), net.parameters())
            outer.step()

    whole, cut = some_net(), some_net()
    train(whole, OuterStep(whole.parameters()), range(4))
    first = OuterStep(cut.parameters())
    train(cut, first, range(2))
    saved, model = first.state_dict(), flat(cut)
    fresh = some_net()
    resumed = OuterStep(fresh.parameters())
    nn.utils.vector_to_parameters(torch.from_numpy(model), fresh.parameters())
    resumed.load_state_dict(saved)
    train(fresh, resumed, range(2, 4))
    assert flat(fresh).tobytes() == flat(whole).tobytes()
    with pytest.raises(aq.ConfigError, match="another outer optimizer"):
        OuterStep(fresh.parameters(), "adam").load_state_dict(saved)


@pytest.mark.usefixtures("alone")
def test_mistakes_get_a_sentence() -> None:
    with pytest.raises(aq.ConfigError, match=r"error = 1.5: it is a share"):
        GradientHook(error=1.5)
    with pytest.raises(aq.ConfigError, match="parameters of float32"):
        OuterStep(nn.Linear(2, 2).double().parameters())
    with pytest.raises(aq.ConfigError, match="'krum' needs each process's update"):
        OuterStep(nn.Linear(2, 2).parameters(), "krum")


def test_without_a_process_group_it_says_what_to_do() -> None:
    with pytest.raises(aq.EngineError, match="init_process_group"):
        GradientHook()
