"""Examples of the user's own: tensors with a row an example, or a map-style data set of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from ..errors import TaskError
from .own import Data
from .task import Examples, Indices


class Items:
    """A map-style data set of pairs (input, target). Tensors are read by rows, others item by item when needed."""

    def __init__(self, dataset: Any, owner: str) -> None:
        self._dataset, self._owner = dataset, owner

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        if isinstance(self._dataset, TensorDataset):
            x, y = self._dataset[torch.from_numpy(np.asarray(indices))]
            return usual(x), usual(y)
        items = [self._item(int(index)) for index in indices]
        inputs, targets = (usual(torch.stack([torch.as_tensor(item[k]) for item in items])) for k in range(2))
        return inputs, targets

    def _item(self, index: int) -> tuple[Any, Any]:
        item = self._dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise TaskError(
                f"Item {index} of {self._owner} is a {type(item).__name__}, expected a tuple (input, target)."
            )
        return item[0], item[1]


class Joined:
    """Several sets of examples as one, numbered through."""

    def __init__(self, sets: Sequence[Examples]) -> None:
        self._sets = sets
        self._ends = np.cumsum([len(one) for one in sets])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def parts(self) -> list[Indices]:
        """The numbers of each set's examples."""
        return [np.arange(end - len(one), end) for end, one in zip(self._ends, self._sets, strict=True)]

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        owners = np.searchsorted(self._ends, indices, side="right")
        changes = np.flatnonzero(np.diff(owners)) + 1
        starts = owners[np.append(0, changes)]
        pieces = [
            self._sets[owner].batch(part - (self._ends[owner] - len(self._sets[owner])))
            for owner, part in zip(starts, np.split(indices, changes), strict=True)
        ]
        x, y = (torch.cat(tensors) for tensors in zip(*pieces, strict=True))
        return x, y


def examples_of(data: Data, owner: str) -> Items:
    """What a user gave as someone's data; `owner` is the word for it in errors."""
    pair = getattr(data, "tensors", data)  # of a TensorDataset
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(one, Tensor | np.ndarray) for one in pair):
        examples = Items(TensorDataset(*(torch.as_tensor(one).detach().cpu() for one in pair)), owner)
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        examples = Items(data, owner)
    else:
        hint = " Give the loader's data set: loader.dataset." if hasattr(data, "dataset") else ""
        raise TaskError(
            f"{owner[0].upper()}{owner[1:]} is a {type(data).__name__}, expected two tensors (inputs, targets) or a "
            f"data set with len() and [number].{hint}"
        )
    if not len(examples):
        raise TaskError(
            f"{owner[0].upper()}{owner[1:]} is empty, expected at least one example. Share the data out so that "
            "everybody has some, or run with fewer clients: --set clients=N."
        )
    return examples


def usual(tensor: Tensor) -> Tensor:
    """Fractions as float32 and whole numbers as int64, the kinds that models and losses take."""
    if tensor.is_floating_point():
        return tensor.to(torch.float32)
    return tensor if tensor.dtype == torch.bool or tensor.is_complex() else tensor.to(torch.int64)
