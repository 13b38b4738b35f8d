"""The peers' side of benchmarks/peers.py, run in their environment: a line of JSON in, a line of JSON out.

    {"do": "methods"}                                the methods, and the version of every package that is installed
    {"do": "open", "method": 3, "vector": "x.npy", "lengths": [...]}   bytes and error of a method, or why it failed
    {"do": "time"}                                   CPU seconds of a copy, one encoding and one decoding

`lengths` are the pieces, the tensors of a model, that the method is given one after the other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import distributions
from itertools import pairwise
from typing import Any

import numpy as np

from peer_methods import METHODS, Array, Method

_REASON = 300  # characters of a failure that go into the record


class Case:
    """A method on a vector."""

    def __init__(self, method: Method, x: Array, lengths: list[int]) -> None:
        self.x = x
        edges = np.concatenate([[0], np.cumsum(lengths)])
        self.parts = [x[a:b] for a, b in pairwise(edges)]
        self.write, self.read, self.size = method.make()
        self.sent = self.encode()
        self.integers = method.integers

    def encode(self) -> list[Any]:
        return [self.write(part) for part in self.parts]

    def decode(self) -> list[Array]:
        return [self.read(sent, len(part)) for sent, part in zip(self.sent, self.parts, strict=True)]

    def figures(self) -> dict[str, Any]:
        back = np.concatenate([np.asarray(part).reshape(-1) for part in self.decode()])
        sizes = [self.size(sent, len(part)) for sent, part in zip(self.sent, self.parts, strict=True)]
        return {"bytes": round(sum(sizes)), "error": relative_error(self.x, back)}

    def seconds(self) -> dict[str, float]:
        target = np.empty_like(self.x)
        target.fill(0)
        return {
            "copy": cpu(lambda: np.copyto(target, self.x)),
            "encode": cpu(self.encode),
            "decode": cpu(self.decode),
        }


def relative_error(x: Array, back: Array) -> float:
    """||back - x||^2 / ||x||^2.

    >>> relative_error(np.array([3.0, 4.0]), np.array([3.0, 3.0]))
    0.04
    """
    if x.shape != back.shape:
        raise ValueError(f"It gave back a vector of shape {back.shape} for one of {x.shape}.")
    if not np.isfinite(back).all():
        raise ValueError("It gave back values that are not finite.")
    wide = x.astype(np.float64)
    return float(np.sum((back.astype(np.float64) - wide) ** 2) / np.sum(wide**2))


def cpu(work: Any) -> float:
    """CPU seconds of all threads: on a shared machine the clock also counts what others do."""
    began = time.process_time()
    work()
    return time.process_time() - began


def methods() -> dict[str, Any]:
    rows = [
        {"peer": m.peer, "name": m.name, "rounding": m.rounding, "counted": m.counted, "integers": m.integers}
        for m in METHODS
    ]
    return {"methods": rows, "versions": {item.metadata["Name"].lower(): item.version for item in distributions()}}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not be taken for an answer
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    case: Case | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "methods":
                answer: dict[str, Any] = methods()
            elif order["do"] == "open":
                case = None
                case = Case(METHODS[order["method"]], np.load(order["vector"]), order["lengths"])
                answer = case.figures()
            else:
                assert case is not None, "open a method first"
                answer = case.seconds()
        except Exception as error:  # whatever goes wrong in a peer is a finding, not an end
            answer = {"failed": f"{type(error).__name__}: {error}"[:_REASON]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
