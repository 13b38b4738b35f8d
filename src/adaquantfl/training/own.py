"""A task of your own: what the function that `adaquantfl run FILE.py:FUNCTION` names returns. See docs/own-task.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # this module stays light: whoever fills it in has PyTorch anyway
    import numpy.typing as npt
    from torch import Tensor, nn
    from torch.utils.data import Dataset

Data: TypeAlias = (
    "Dataset[Any] | Sequence[tuple[Any, Any]] | tuple[Tensor | npt.NDArray[Any], Tensor | npt.NDArray[Any]]"
)
"""Examples: inputs and targets as two tensors or arrays with a row an example, or a map-style data set of pairs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnTask:
    """A model, a loss, and each client's data.

    >>> import torch
    >>> def task(clients: int, seed: int) -> OwnTask:
    ...     x = torch.randn(100 * clients, 5)
    ...     y = x.sum(1, keepdim=True)
    ...     return OwnTask(
    ...         model=lambda: torch.nn.Linear(5, 1),
    ...         loss=torch.nn.functional.mse_loss,
    ...         train=list(zip(x.chunk(clients), y.chunk(clients), strict=True)),
    ...     )
    >>> len(task(clients=4, seed=0).train)
    4
    """

    model: nn.Module | Callable[[], nn.Module]
    """The model, or what builds it. Parameters that need no gradient stay as they are and are not sent."""

    loss: Callable[[Any, Tensor], Tensor]
    """(outputs, targets) -> a scalar: the mean over the batch."""

    train: Sequence[Data]
    """The data of client 0, 1, ...: one for each. A client counts by how many examples it has."""

    test: Data | None = None
    """Examples that nobody trains on: measured by `accuracy` where there is one, else by the loss."""

    accuracy: Callable[[Any, Tensor], Tensor] | None = None
    """(outputs, targets) -> which examples of the batch are right, as bools. With `classes`: the largest output."""

    classes: Sequence[str] = ()
    """Of a classifier whose targets are 0, 1, ...: their names."""
