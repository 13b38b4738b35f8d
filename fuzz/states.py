"""States of servers and clients, mutated value by value, and what must hold for each of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.errors import AdaQuantError, CheckpointError

from . import frames
from .messages import CLIENTS, Setup
from .oracles import Finding

USED = 0.3  # of the states that are taken: a round is played with them
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 2**31, 2**64, 10**400, 0.5, -1.0, 1e300, float("nan"), float("inf"), "", "x", "0",
    "9" * 5000, "exact", b"", b"AQO1", bytes(16), [], [0], [[]], [-1, "x"], {}, {"0": 0}, {"x": None},
    {"$array": "meta"}, {"$bytes": "nothing"}, np.zeros(0, np.float32), np.zeros(33, np.float32),
    np.full(33, np.nan, np.float32), np.zeros((3, 11)), np.zeros(33, "U3"), np.zeros(2, np.complex64), np.array(1.0),
)  # fmt: skip


class StateOracle:
    """Mutates and restores states. Each method runs one, and returns the reason of the refusal or None."""

    def __init__(self, chance: Random, mutator: frames.Mutator, setups: list[Setup]) -> None:
        self.chance, self.mutator, self.setups = chance, mutator, setups
        self.data = b""  # the last state, for a finding
        self.runs: tuple[Callable[[], str | None], ...] = (self.server_state, self.client_state, self.packed_state)

    def server_state(self) -> str | None:
        """A server's state, with or without an open round; a round is played from some that are taken."""
        at = self.chance.choice(self.setups)
        tree = self._mutated(self.chance.choice((at.state, at.heard, at.closed)))
        try:
            server = aq.Server.restore(tree)
            self._finite(server.weights)
            server.state()
            if self.chance.random() < USED:
                orders = {} if server._round else server.open(list(range(CLIENTS)), eta=0.1, loss=1.0)
                for number, order in orders.items():
                    weights: Any = aq.Client(number).open(order)
                    server.receive(number, aq.Client.restore(at.clients[number]).reply(weights, loss=1.0))
                self._finite(server.close().weights)
        except AdaQuantError as error:
            return str(error)
        return None

    def client_state(self) -> str | None:
        """A client's state; it opens the next order and replies with some that are taken."""
        at, number = self.chance.choice(self.setups), self.chance.randrange(CLIENTS)
        tree = self._mutated(at.clients[number])
        try:
            client = aq.Client.restore(tree)
            client.state()
            if self.chance.random() < USED:
                weights: Any = client.open(at.orders[number].pack())
                client.reply(weights, loss=1.0, examples=3)
        except AdaQuantError as error:
            return str(error)
        return None

    def packed_state(self) -> str | None:
        """Bytes that are not quite those of a state."""
        at, number = self.chance.choice(self.setups), self.chance.randrange(CLIENTS)
        data = self.data = self._packed(at.clients[number])
        try:
            tree = checkpoint.unpack(data)
        except CheckpointError as error:
            return str(error)
        if not isinstance(tree, dict):
            raise Finding("a state is no tree")
        return None

    def _finite(self, weights: Any) -> None:
        arrays = weights.values() if isinstance(weights, dict) else [weights]
        if not all(np.isfinite(array).all() for array in arrays):
            raise Finding("a weight is not finite")

    def _mutated(self, tree: Any) -> Any:
        """A copy with some values changed, moved or left out."""
        changed = _copy(tree)
        for _ in range(1 if self.chance.random() < 0.7 else 2):
            holders = list(_holders(changed))
            holder, key = self.chance.choice(holders)
            kind = self.chance.randrange(5)
            if kind == 0:
                del holder[key]
            elif kind == 1:
                other, place = self.chance.choice(holders)
                holder[key] = _copy(other[place])
            elif kind == 2 and isinstance(holder[key], bytes):
                holder[key] = self.mutator.raw(holder[key])
            else:
                holder[key] = _copy(self.chance.choice(VALUES))
        self.data = repr(changed).encode()
        return changed

    def _packed(self, tree: Any) -> bytes:
        chance, kind = self.chance, self.chance.randrange(3)
        if kind == 0:
            return self.mutator.raw(checkpoint.pack(tree))
        if kind == 1:
            return checkpoint.pack(self._mutated({key: value for key, value in tree.items() if key != "held"}))
        arrays: dict[str, Any] = {}
        text = json.dumps({"format": checkpoint.FORMAT, "tree": checkpoint._written(tree, arrays)})
        text = self.mutator.raw(text.encode()).decode(errors="replace")
        name = chance.choice(list(arrays))
        arrays[name] = chance.choice([value for value in VALUES if isinstance(value, np.ndarray)])
        file = io.BytesIO()
        np.savez(file, meta=np.array(text), **arrays)
        return file.getvalue()


def _copy(tree: Any) -> Any:
    """With dictionaries and lists of its own."""
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(value) for value in tree] if isinstance(tree, list | tuple) else tree


def _holders(tree: Any) -> Any:
    """Every place of a value in a tree: what holds it, and the key."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _holders(value)
