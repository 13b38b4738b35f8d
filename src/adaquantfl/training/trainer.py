"""The client: tau steps of local SGD (eq. 2), and the update sent as a quantized frame."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..codecs.coding import compress, decode, encode
from ..codecs.raw import encode_float32
from ..protocol import survey
from ..protocol.levels import levels_of
from ..protocol.messages import Federation, Model, Plan, Reply, Vector
from ..quantizers.levels import quantize
from ..quantizers.segments import scope_segments
from ..quantizers.streams import stream_key
from ..runs.config import Config
from .chance import repeatable
from .task import Examples, Task

_BATCHES = 1  # sub-stream of a client's key that draws its mini-batches; the quantizer uses the key itself
_LOSS_SAMPLE = -1  # in place of a round: the sample on which "full" evaluates the loss
_EVERYBODY = -1  # in place of a client
_EVALUATION_BATCH = 256
_HARM_SAMPLE = 128  # of a client's data


class Trainer:
    """Plays any of the clients, one at a time, with one model in memory."""

    def __init__(self, config: Config, task: Task) -> None:
        self.config = config
        self.task = task
        self._net = task.build()
        parameters = [p for p in self._net.parameters() if p.requires_grad]  # the others are the same everywhere
        self._flat = flatten(parameters)
        self._buffers = list(self._net.buffers())
        self._optimizer = torch.optim.SGD(parameters, lr=config.eta, foreach=True)
        first = Model(self._flat.numpy().copy(), self._read_buffers())
        tensors = tuple(p.numel() for p in parameters)
        self.federation = Federation(first, tensors, tuple(len(part) for part in task.parts))
        self._segments = scope_segments(config.scope, tensors)
        self._rule = config.schedule()
        self.remainders: dict[int, Vector] = {}  # of quantizers that are meant for error feedback
        self._pool: npt.NDArray[np.int64] | None = None

    def train(self, client: int, model: Model, plan: Plan) -> Reply:
        """One client's round: read w_k, run tau steps, send Q(w_tau - w_k)."""
        with one_thread():
            started = time.perf_counter()
            self._load(model)
            with repeatable(stream_key(self.config.seed, plan.round, client)):  # layers such as dropout
                loss = self._local_sgd(client, plan)
            update = self._flat.numpy() - model.weights
            trained = time.perf_counter()
            if not (math.isfinite(loss) and np.isfinite(update).all()):
                return Reply(client, b"", b"", math.nan, trained - started, 0.0)  # diverged: there is nothing to send
            frame = self._encode(update, client, plan)
            buffers = encode_float32(self._read_buffers()) if self._buffers else b""
            seen = self._survey(model, update, frame, client, plan) if plan.survey else b""
            return Reply(client, frame, buffers, loss, trained - started, time.perf_counter() - trained, seen)

    def loss(self, client: int, model: Model) -> float:
        """f_i(w) on the client's data, or on a fixed sample of it."""
        part = self.task.parts[client]
        size = self.config.loss_samples
        if 0 < size < len(part):
            part = self._rng(_LOSS_SAMPLE, client).choice(part, size, replace=False)
        return self._total_loss(model, self.task.train, part) / len(part)

    def losses(self, start: int, stop: int, model: Model) -> float:
        """The sum of the losses on the samples start to stop of all clients' data, in an order fixed for the run."""
        if self._pool is None:
            everything = np.concatenate(self.task.parts)
            self._pool = self._rng(_LOSS_SAMPLE, _EVERYBODY).permutation(everything)
        return self._total_loss(model, self.task.train, self._pool[start:stop])

    def correct(self, start: int, stop: int, model: Model) -> int:
        """How many of the test samples start to stop the model gets right."""
        test, accuracy = self.task.test, self.task.accuracy
        assert test is not None
        assert accuracy is not None
        return int(self._evaluate(model, test, np.arange(start, stop), lambda output, y: accuracy(output, y).sum()))

    def test_losses(self, start: int, stop: int, model: Model) -> float:
        """The sum of the losses on the test samples start to stop: the measure of tasks without an accuracy."""
        assert self.task.test is not None
        return self._total_loss(model, self.task.test, np.arange(start, stop))

    def _local_sgd(self, client: int, plan: Plan) -> float:
        self._net.train()
        self._optimizer.param_groups[0]["lr"] = plan.eta
        total = 0.0
        for batch in self._batches(client, plan.round):
            x, y = self.task.train.batch(batch)
            self._optimizer.zero_grad()
            with self._precision():
                loss = self.task.loss(self._net(self._layout(x)), y)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            total += loss.item()
        return total / self.config.tau

    def _batches(self, client: int, round: int) -> Iterator[npt.NDArray[np.int64]]:
        """tau mini-batches, drawn without replacement until the client's data is used up, then anew."""
        part, size = self.task.parts[client], self.config.batch_size
        rng = self._rng(round, client)
        needed = self.config.tau * size
        order = np.concatenate([rng.permutation(len(part)) for _ in range(-(-needed // len(part)))])
        for step in range(self.config.tau):
            yield part[order[step * size : (step + 1) * size]]

    def _rng(self, round: int, client: int) -> np.random.Generator:
        key = np.array([stream_key(self.config.seed, round, client), _BATCHES], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _encode(self, update: Vector, client: int, plan: Plan) -> bytes:
        if plan.s is None:
            return encode_float32(update)
        key = stream_key(self.config.seed, plan.round, client)
        wanted = update + self.remainders.get(client, np.float32(0)) if self.config.feedback else update
        chosen = self._rule.client_levels(plan.s, self.federation.weights, client, wanted)
        s, stretch = levels_of(wanted, chosen, self._segments, self.config)
        kind, norm = self.config.quantizer, self.config.norm or None
        if not self.config.feedback:
            return compress(wanted, s, key, self.config.codec, self._segments, stretch, kind, norm)
        levels = quantize(wanted, s, key, self._segments, stretch, kind, norm)
        self.remainders[client] = levels.remainder(wanted)
        return encode(levels, self.config.codec)

    def _survey(self, model: Model, update: Vector, frame: bytes, client: int, plan: Plan) -> bytes:
        """What other levels would do, and what the noise of these does to the loss at w_k.

        The noise is scaled to what is left of it when the updates of a round's clients, with noise of their own, are
        added up.
        """
        assert plan.s is not None
        key = stream_key(self.config.seed, plan.round, client)
        noise = decode(frame).dequantize() - update
        share = (self.config.clients_per_round or self.config.clients) / self.config.clients
        noise *= np.float32(math.sqrt(sum(p * p for p in self.federation.weights) / share))
        part = self.task.parts[client]
        sample = self._rng(plan.round, client).choice(part, min(len(part), _HARM_SAMPLE), replace=False)
        at, near = (
            self._total_loss(Model(weights, model.buffers), self.task.train, sample) / len(sample)
            for weights in (model.weights, model.weights + noise)
        )
        return survey.look(update, self._rule.candidates(plan.s), key, self.config, self._segments, (at, near - at))

    def _total_loss(self, model: Model, data: Examples, indices: npt.NDArray[np.int64]) -> float:
        loss = self.task.loss
        return self._evaluate(model, data, indices, lambda output, y: loss(output, y).item() * len(y))

    @torch.no_grad()
    def _evaluate(
        self, model: Model, data: Examples, indices: npt.NDArray[np.int64], measure: Callable[[Any, torch.Tensor], Any]
    ) -> float:
        """The sum of a measure over batches of these examples."""
        with one_thread(), repeatable(self.config.seed):
            self._load(model)
            self._net.eval()
            total = 0.0
            for start in range(0, len(indices), _EVALUATION_BATCH):
                x, y = data.batch(indices[start : start + _EVALUATION_BATCH])
                with self._precision():
                    output = self._net(self._layout(x))
                total += float(measure(output.float() if isinstance(output, torch.Tensor) else output, y))
            return total

    def _load(self, model: Model) -> None:
        self._flat.copy_(torch.from_numpy(model.weights))
        start = 0
        for buffer in self._buffers:
            values = torch.from_numpy(model.buffers[start : start + buffer.numel()]).view(buffer.shape)
            # Batch counts are whole numbers; their mean over clients may miss them by rounding.
            buffer.copy_(values if buffer.is_floating_point() else values.round())
            start += buffer.numel()

    def _read_buffers(self) -> Vector:
        parts = [buffer.detach().reshape(-1).to(torch.float32).numpy() for buffer in self._buffers]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.precision == "bf16")

    def _layout(self, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def flatten(parameters: list[torch.nn.Parameter]) -> torch.Tensor:
    """Make the parameters views of one flat vector and return it: writing to it writes to them all.

    Convolution kernels lie in it channels last, the order in which PyTorch's CPU convolutions are fastest.
    """
    flat = torch.empty(sum(p.numel() for p in parameters))
    start = 0
    for p in parameters:
        piece = flat[start : start + p.numel()]
        if p.ndim == 4:
            out_channels, in_channels, height, width = p.shape
            view = piece.view(out_channels, height, width, in_channels).permute(0, 3, 1, 2)
        else:
            view = piece.view(p.shape)
        p.data = view.copy_(p.data)
        start += p.numel()
    return flat


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: its sums depend on the number of threads, and results must not depend on workers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
