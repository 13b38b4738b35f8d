"""Convolution on maps of a few pixels, where most of a 3x3 kernel lies on the padding.

ResNet-18 in its ImageNet shape shrinks a 32x32 picture to 2x2 and then 1x1. PyTorch multiplies the padding's zeros all
the same: on a 1x1 map that is eight ninths of the work, and most of a training step. Here each output pixel is one
matrix product over the taps that meet the map. The layer's parameters and its function are those of `nn.Conv2d`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_FEW = 4  # pixels of a map


class SmallMapConv2d(nn.Conv2d):
    """`nn.Conv2d` without bias, faster where the map has at most four pixels."""

    def __init__(self, channels_in: int, channels_out: int, size: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, padding=padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] * x.shape[3] > _FEW or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        result: Tensor = _PixelByPixel.apply(x, self.weight, self.stride[0], int(self.padding[0]))  # type: ignore[no-untyped-call]
        return result


class _PixelByPixel(torch.autograd.Function):
    """Channels last throughout: a window of the map and the taps over it are then rows of the same matrix product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        pixels, taps = x.permute(0, 2, 3, 1), weight.permute(0, 2, 3, 1)
        ctx.save_for_backward(pixels, taps)
        ctx.geometry = stride, padding
        size = [(side + 2 * padding - k) // stride + 1 for side, k in zip(x.shape[2:], weight.shape[2:], strict=True)]
        out = x.new_zeros(len(x), *size, len(weight))
        for (row, column), window, under in _windows(size, pixels, taps, stride, padding):
            out[:, row, column] = pixels[window].flatten(1) @ taps[under].flatten(1).T
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        pixels, taps = ctx.saved_tensors
        by_pixels, by_taps = torch.zeros_like(pixels), torch.zeros_like(taps)
        out = gradient.permute(0, 2, 3, 1)
        for (row, column), window, under in _windows(out.shape[1:3], pixels, taps, *ctx.geometry):
            at = out[:, row, column]
            by_pixels[window] += (at @ taps[under].flatten(1)).view_as(pixels[window])
            by_taps[under] += (at.T @ pixels[window].flatten(1)).view_as(taps[under])
        return by_pixels.permute(0, 3, 1, 2), by_taps.permute(0, 3, 1, 2), None, None


Window = tuple[slice, slice, slice]


def _windows(
    size: torch.Size | list[int], pixels: Tensor, taps: Tensor, stride: int, padding: int
) -> Iterator[tuple[tuple[int, int], Window, Window]]:
    """For each output pixel: the part of the map under the kernel, and the part of the kernel over the map."""
    for row in range(size[0]):
        for column in range(size[1]):
            rows = _meet(row * stride - padding, taps.shape[1], pixels.shape[1])
            columns = _meet(column * stride - padding, taps.shape[2], pixels.shape[2])
            if rows and columns:
                yield (row, column), (slice(None), rows[0], columns[0]), (slice(None), rows[1], columns[1])


def _meet(start: int, taps: int, side: int) -> tuple[slice, slice] | None:
    first, last = max(start, 0), min(start + taps, side)
    return (slice(first, last), slice(first - start, last - start)) if first < last else None
