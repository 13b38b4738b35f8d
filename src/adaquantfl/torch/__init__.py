"""Quantized gradients and updates in your own PyTorch training: a DDP communication hook, and DiLoCo's outer step.

Both need PyTorch and an initialised torch.distributed: docs/how-to/pytorch.md.
"""

from __future__ import annotations

from .hook import GradientHook, quantize_hook
from .outer import OuterStep

__all__ = ["GradientHook", "OuterStep", "quantize_hook"]
