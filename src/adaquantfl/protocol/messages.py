"""What travels between server and clients, whichever engine carries it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ..codecs.frame import payload_size

if TYPE_CHECKING:
    from .downlink import Downlink

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """The global model: trained parameters, and buffers such as BatchNorm statistics (possibly none)."""

    weights: Vector
    buffers: Vector


@dataclass(frozen=True)
class Plan:
    """The server's orders for one round. s need not be whole, and is None for float32; survey: whether to send one."""

    round: int
    s: float | None
    eta: float
    survey: bool = False

    BYTES = 16  # round and survey, and s, in 4 bytes each, eta in 8


@dataclass(frozen=True)
class Reply:
    """A client's answer. `frame` carries the update, `buffers` a float32 frame (empty where there are none)."""

    client: int
    frame: bytes
    buffers: bytes
    round_loss: float  # mean mini-batch loss over the tau steps
    train_seconds: float
    encode_seconds: float
    survey: bytes = b""  # what other levels would have done, where the plan asks; see `survey.py`

    @property
    def wire_bytes(self) -> int:
        return len(self.frame) + len(self.buffers) + len(self.survey) + 4  # and the loss, a float32

    @property
    def payload_bytes(self) -> int:
        """The frames without their headers and checksums."""
        return payload_size(self.frame) + (payload_size(self.buffers) if self.buffers else 0)


@dataclass(frozen=True)
class Absence:
    """A client that gave no answer, or none that could be used, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class Evaluation:
    """The global loss f(w) = sum of p_i f_i(w) (eq. 1), and the accuracy on the test set where it was asked for.

    A task without an accuracy has the loss on the test set instead.
    """

    loss: float
    accuracy: float | None
    test_loss: float | None = None

    @property
    def test(self) -> dict[str, float | None]:
        """What was measured on the test set, by its name in records."""
        if self.test_loss is not None:
            return {"test_loss": self.test_loss}
        return {} if self.accuracy is None else {"test_accuracy": self.accuracy}


@dataclass(frozen=True)
class Federation:
    """Who takes part and in what: fixed for a run."""

    model: Model  # w_0
    tensors: tuple[int, ...]  # elements of each parameter tensor, in order
    samples: tuple[int, ...]  # m_i

    @property
    def dimension(self) -> int:
        return len(self.model.weights)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """p_i = m_i / sum of m."""
        total = sum(self.samples)
        return tuple(m / total for m in self.samples)


class Engine(Protocol):
    """Carries plans and models to the clients and their replies back."""

    name: str
    federation: Federation
    downlink: Downlink | None  # set before each round and evaluation: what leads to its model

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        """The reply of each of these clients (None: all), or its absence, in their order however they arrive."""

    def evaluate(self, model: Model, test: bool = True) -> Evaluation:
        """f(w) over the clients' data, and the accuracy on the test set."""

    def kept(self) -> dict[int, Vector]:
        """What clients in this process keep from round to round: the remainders of error feedback."""

    def restore(self, kept: Mapping[int, Vector]) -> None:
        """Give it back to them, before the first round of a run that goes on."""

    def close(self) -> None:
        """Let go of processes and memory. May be called twice."""
