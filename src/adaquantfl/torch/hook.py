"""A communication hook for DistributedDataParallel: gradients travel as frames, with error feedback."""

# Not `from __future__ import annotations`: PyTorch looks at the annotations of a hook.
import numpy as np
import torch
import torch.distributed as dist

from ..codecs.coding import encode, quantize_within
from ..errors import ConfigError
from ..protocol.arrays import Vector
from .exchange import check_group, is_number, mean


class GradientHook:
    """The state of `quantize_hook`: its settings, and what each parameter's gradients left out so far.

    error: the share of a gradient's energy that may be sent in a later step. More is cheaper; lower it where the loss
    falls more slowly than without the hook. bytes_sent: by this process, so far.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    >>> hook = GradientHook()
    >>> model.register_comm_hook(hook, quantize_hook)
    >>> model(torch.ones(2, 3)).sum().backward()
    >>> hook.bytes_sent > 0
    True
    >>> dist.destroy_process_group()
    """

    def __init__(self, error: float = 0.2, group: dist.ProcessGroup | None = None) -> None:
        if not is_number(error) or not 0 < error < 1:
            raise ConfigError(f"error = {error!r}: it is a share of a gradient's energy, between 0 and 1.")
        check_group()
        self.bytes_sent = 0
        self._error, self._group = error, group
        self._left_out: dict[torch.Tensor, Vector] = {}  # by parameter: DDP makes its buckets anew after the first step

    def average(self, bucket: dist.GradBucket) -> torch.Tensor:
        """The mean of a bucket's gradients over the processes, in the bucket's place."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        lengths = [p.numel() for p in parameters]
        vector: Vector = buffer.detach().to("cpu", torch.float32).numpy().copy()
        edges = np.cumsum([0, *lengths])
        for p, start, stop in zip(parameters, edges, edges[1:], strict=False):
            if p in self._left_out:
                vector[start:stop] += self._left_out[p]

        def frame() -> bytes:
            levels = quantize_within(vector, self._error, segments=lengths, balanced=False)
            data = encode(levels)
            levels.take_from(vector)
            return data

        average, size = mean(frame, len(vector), self._group)
        self.bytes_sent += size
        for p, start, stop in zip(parameters, edges, edges[1:], strict=False):
            self._left_out[p] = vector[start:stop]
        return buffer.copy_(torch.from_numpy(average))


def quantize_hook(state: GradientHook, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What `DistributedDataParallel.register_comm_hook` takes, with a `GradientHook` as the state.

    >>> quantize_hook.__name__
    'quantize_hook'
    """
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(state.average(bucket))
    return future
