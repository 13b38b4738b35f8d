"""The convolution on small maps is `nn.Conv2d`."""

import pytest
import torch
from torch import nn

from adaquantfl.training.small_maps import SmallMapConv2d


@pytest.mark.parametrize("side", [(1, 1), (2, 2), (1, 3), (4, 1), (3, 3)])
@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 1, 2), (5, 3, 4)])
def test_output_and_gradients_are_those_of_conv2d(side: tuple[int, int], size: int, stride: int, padding: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, *side, generator=generator, dtype=torch.float64)
    ours = SmallMapConv2d(5, 7, size, stride, padding).double()
    theirs = nn.Conv2d(5, 7, size, stride, padding, bias=False).double()
    theirs.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, theirs):
        taken = x.clone().requires_grad_()
        out = layer(taken)
        out.backward(torch.arange(out.numel(), dtype=torch.float64).view_as(out))
        results.append((out, taken.grad, layer.weight.grad))
    for mine, reference in zip(*results, strict=True):
        torch.testing.assert_close(mine, reference)


def test_autocast_still_gives_bfloat16() -> None:
    layer = SmallMapConv2d(4, 4, 3, padding=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.ones(1, 4, 2, 2)).dtype == torch.bfloat16
