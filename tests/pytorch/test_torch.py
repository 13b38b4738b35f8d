"""The hook and the outer step in one process: error feedback loses nothing, the outer step's noise has no bias."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import adaquantfl as aq
from adaquantfl.torch import GradientHook, OuterStep, quantize_hook
from support.processes import HANG_SECONDS


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
    for step in range(1, 41):
        model.zero_grad()
        model(x).square().sum().backward()
        total += np.concatenate([p.grad.numpy().ravel() for p in net.parameters() if p.grad is not None])
        errors.append(np.linalg.norm(total / step - expected) / np.linalg.norm(expected))
    assert errors[0] > 0.3, "the levels are coarse"
    assert errors[-1] < 0.1
    assert 0 < hook.bytes_sent < 40 * expected.nbytes / 4


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("step", ["sum", aq.Nesterov(eta=0.5, beta=0.8), "adam"])
def test_an_outer_step_is_the_servers_step_of_what_was_sent(step: Any) -> None:
    net, rng = some_net(), np.random.default_rng(0)
    outer, start = OuterStep(net.parameters(), step, noise=0.001), flat(net)
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
def test_the_noise_of_outer_steps_is_what_was_asked_for_and_averages_out() -> None:
    """The mean of 200 steps with the same move is the move: false alarm at 5 deviations, below 1e-6."""
    net, steps = nn.Linear(200, 100, bias=False), 200
    outer, start = OuterStep(net.parameters(), "sum", noise=2.0), flat(net)
    move = np.random.default_rng(0).normal(0, 0.01, len(start)).astype(np.float32)
    errors = []
    for _ in range(steps):
        before = flat(net)
        nn.utils.vector_to_parameters(torch.from_numpy(before + move), net.parameters())
        assert 0 < 8 * outer.step() / len(start) < 1
        errors.append(np.linalg.norm(flat(net) - before - move) / np.linalg.norm(move))
        assert 0.7 * 2.0 < errors[-1] ** 2 <= 2.0 * 1.05
    along = np.dot(flat(net) - start, move) / np.dot(move, move) / steps
    assert along == pytest.approx(1, abs=0.02)
    left = np.linalg.norm((flat(net) - start) / steps - move) / np.linalg.norm(move)
    assert left == pytest.approx(np.mean(errors) / np.sqrt(steps), rel=0.1)


@pytest.mark.usefixtures("alone")
def test_mistakes_get_a_sentence() -> None:
    with pytest.raises(aq.ConfigError, match=r"error = 1.5: it is a share"):
        GradientHook(error=1.5)
    with pytest.raises(aq.ConfigError, match=r"error = 'x': it is a share"):
        GradientHook(error="x")  # type: ignore[arg-type]  # what a user may write
    with pytest.raises(aq.ConfigError, match=r"noise = True: it is a number"):
        OuterStep(nn.Linear(2, 2).parameters(), noise=True)
    with pytest.raises(aq.ConfigError, match=r"noise = nan: it is a number above 0"):
        OuterStep(nn.Linear(2, 2).parameters(), noise=float("nan"))
    with pytest.raises(aq.ConfigError, match="parameters of float32"):
        OuterStep(nn.Linear(2, 2).double().parameters())
    with pytest.raises(aq.ConfigError, match="'krum' needs each process's update"):
        OuterStep(nn.Linear(2, 2).parameters(), "krum")


@pytest.mark.parametrize("make", [GradientHook, lambda: OuterStep(nn.Linear(2, 2).parameters())])
def test_without_a_process_group_it_says_what_to_do(make: Any) -> None:
    with pytest.raises(aq.EngineError, match="init_process_group"):
        make()


def failing(rank: int, store: str, answers: Any) -> None:
    """A process that has NaN in its weights, and one that has not."""
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    net = nn.Linear(30, 2)
    outer = OuterStep(net.parameters())
    if rank == 1:
        nn.init.constant_(net.weight, float("nan"))
    try:
        outer.step()
    except aq.AdaQuantError as error:
        answers.put((rank, str(error)))
    dist.destroy_process_group()


@pytest.mark.slow
def test_where_one_process_cannot_send_all_of_them_say_so(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=failing, args=(rank, str(tmp_path / "store"), answers)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=HANG_SECONDS) for _ in processes)
    for process in processes:
        process.join(HANG_SECONDS)
    assert "Process 1 could not send its update" in found[0]
    assert "NaN" in found[1]
