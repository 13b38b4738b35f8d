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
from adaquantfl.torch.budget import within


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
def test_an_outer_step_keeps_to_its_bits_and_forgets_what_is_not_kept() -> None:
    net = nn.Linear(200, 200, bias=False)
    start, rng = flat(net), np.random.default_rng(0)
    bits, kept = 0.5, 0.5
    outer = OuterStep(net.parameters(), "sum", bits=bits, kept=kept)
    left_out = np.zeros_like(start)
    for _ in range(3):
        move = rng.normal(0, 0.01, len(start)).astype(np.float32)
        before = flat(net)
        nn.utils.vector_to_parameters(torch.from_numpy(before + move), net.parameters())
        sent = outer.step()
        assert 0.9 * bits < 8 * sent / len(start) <= bits
        wanted = move + np.float32(kept) * left_out
        left_out = wanted - (flat(net) - before)
        # the step is fitted by least squares: what was sent and what was left out are orthogonal
        assert abs(np.dot(left_out, wanted - left_out)) < 0.01 * np.dot(wanted, wanted)
    known = outer.state_dict()["left_out"].numpy()
    np.testing.assert_allclose(known, left_out, atol=1e-6)


@pytest.mark.parametrize("bits", [0.02, 0.14, 1.0, 4.0])
def test_a_budget_is_kept_and_used(bits: float) -> None:
    rng, lengths = np.random.default_rng(1), [150_000, 30, 49_970]
    x = np.repeat([1.0, 1e-3, 1e3], lengths) * rng.standard_t(4, sum(lengths))
    levels, frame = within(x.astype(np.float32), lengths, bits, "fitted")
    assert 0.9 * bits < 8 * len(frame) / len(x) <= bits
    share = np.add.reduceat(levels.values != 0, levels.offsets[:-1]) / lengths
    assert share[2] == pytest.approx(share[0], rel=0.3), "tensors of any size in numbers send the same share"


def test_a_budget_holds_with_tensors_of_zeros() -> None:
    x = np.zeros(5_000, dtype=np.float32)
    levels, _ = within(x, [2_000, 3_000], 0.14, "fitted")
    assert not levels.dequantize().any()
    x[4_000] = 1.0
    assert within(x, [2_000, 3_000], 0.14, "fitted")[0].dequantize()[4_000] == 1.0


@pytest.mark.usefixtures("alone")
def test_mistakes_get_a_sentence() -> None:
    with pytest.raises(aq.ConfigError, match=r"error = 1.5: it is a share"):
        GradientHook(error=1.5)
    with pytest.raises(aq.ConfigError, match=r"bits = 0: it is a number above 0"):
        OuterStep(nn.Linear(2, 2).parameters(), bits=0)
    with pytest.raises(aq.ConfigError, match=r"kept = 2: it is a share"):
        OuterStep(nn.Linear(2, 2).parameters(), kept=2)
    with pytest.raises(aq.ConfigError, match="parameters of float32"):
        OuterStep(nn.Linear(2, 2).double().parameters())
    with pytest.raises(aq.ConfigError, match="'krum' needs each process's update"):
        OuterStep(nn.Linear(2, 2).parameters(), "krum")


def test_without_a_process_group_it_says_what_to_do() -> None:
    with pytest.raises(aq.EngineError, match="init_process_group"):
        GradientHook()


def test_a_budget_below_the_headers_is_refused_with_what_they_take() -> None:
    vector = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    with pytest.raises(aq.ConfigError, match=r"8 tensors of 4,096 elements take 0\.1"):
        within(vector, [512] * 8, 0.14, "fitted")
