"""Random numbers as a function of a seed, also where a user's code or a layer draws them from a global generator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Inside, PyTorch's, NumPy's and Python's global generators start from `seed`; outside they are as they were.

    >>> with repeatable(7): first = torch.rand(1), random.random()
    >>> with repeatable(7): first == (torch.rand(1), random.random())
    True
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (what users' code may draw from)
    with torch.random.fork_rng(devices=[]):
        # The CPU generator itself, since torch.manual_seed would also reseed every GPU.
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002
