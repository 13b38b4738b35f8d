"""Who holds which samples: i.i.d., sorted by label (the paper's non-i.i.d.), or Dirichlet-skewed labels.

Every sample goes to exactly one client, nobody is left empty, and the same seed gives the same partition.
"""

import re
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..names import unknown

Labels: TypeAlias = npt.NDArray[np.integer]
Indices: TypeAlias = npt.NDArray[np.int64]

KINDS = ("iid", "sorted", "dirichlet(0.3)")
_DIRICHLET = re.compile(r"dirichlet\(\s*([^()\s]+)\s*\)")
# Beyond these the draw no longer changes (one client takes a class, or all share it), but gamma variates
# underflow or overflow.
_ALPHA_LIMITS = (1e-9, 1e9)


def partition(labels: Labels, clients: int, kind: str, seed: int) -> list[Indices]:
    """One ascending array of sample indices per client.

    - "iid": shuffled; sizes differ by at most one.
    - "sorted": sorted by label and cut equally; it needs no randomness.
    - "dirichlet(alpha)": each class is shared out in Dirichlet(alpha) proportions. A small alpha gives each client few
      classes, a large one comes close to i.i.d.
    """
    labels = np.asarray(labels)
    check_shares(len(labels), clients)
    rng = np.random.default_rng(seed)
    if kind == "iid":
        parts = np.array_split(rng.permutation(len(labels)), clients)
    elif kind == "sorted":
        parts = np.array_split(np.argsort(labels, kind="stable"), clients)
    else:
        parts = _dirichlet(labels, clients, _alpha(kind), rng)
    return [np.sort(part).astype(np.int64) for part in parts]


def check_kind(kind: str) -> None:
    """ConfigError where there is no partition of this name."""
    if kind not in ("iid", "sorted"):
        _alpha(kind)


def check_shares(samples: int, clients: int) -> None:
    """ConfigError where there are too few samples for each client to have one."""
    if not 1 <= clients <= samples:
        raise ConfigError(
            f"{samples} samples cannot be shared by clients = {clients}. Expected at least 1 client and "
            f"at least one sample each: set clients between 1 and {samples}."
        )


def _dirichlet(labels: Labels, clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    alpha = float(np.clip(alpha, *_ALPHA_LIMITS))
    shares: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        proportions = rng.dirichlet(np.full(clients, alpha))
        cuts = (np.cumsum(proportions)[:-1] * len(members)).astype(np.int64)
        for share, piece in zip(shares, np.split(members, cuts), strict=True):
            share.append(piece)
    return _none_empty([np.concatenate(share) for share in shares])


def _none_empty(parts: list[Indices]) -> list[Indices]:
    """Give each empty client one sample of the client that then holds most, the first of them on a tie."""
    sizes = np.array([len(part) for part in parts])
    for client in np.flatnonzero(sizes == 0):
        donor = int(np.argmax(sizes))
        parts[client], parts[donor] = parts[donor][-1:], parts[donor][:-1]
        sizes[client], sizes[donor] = 1, sizes[donor] - 1
    return parts


def _alpha(kind: str) -> float:
    match = _DIRICHLET.fullmatch(kind.strip())
    with suppress(ValueError):
        if match and 0 < (alpha := float(match[1])) < float("inf"):
            return alpha
    raise ConfigError(unknown("partition", kind, KINDS) + " Any finite alpha above 0 may stand in the brackets.")
