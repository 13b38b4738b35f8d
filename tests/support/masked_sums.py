"""A masked sum played in one process, whose clients can drop out, or lie, at any step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from adaquantfl.private.collector import Collector
from adaquantfl.private.contributor import Contributor
from adaquantfl.private.masks import Words

SESSION = bytes(16)
Change = Callable[[int, int, bytes], bytes]  # (step, client, message) -> what is sent in its place


class Cast:
    """Clients with random numbers and fixed keys."""

    def __init__(self, clients: int, words: Words, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.words = words
        self.values = {n: rng.integers(0, 2**words.bits, words.count).astype(words.dtype) for n in range(clients)}
        self.facts = {n: rng.integers(0, 2**63, words.facts).astype("<u8") for n in range(clients)}
        self.contributors = {
            n: Contributor(n, SESSION, words.bits, self.values[n], self.facts[n], *(rng.bytes(32) for _ in range(3)))
            for n in range(clients)
        }

    def expected(self, clients: Collection[int]) -> tuple[np.ndarray, np.ndarray]:
        values = sum(self.values[n].astype(np.uint64) for n in clients) % np.uint64(2**self.words.bits)
        return values, np.array([self.facts[n] for n in clients]).sum(axis=0, dtype=np.uint64)


def play(
    cast: Cast,
    least: int,
    gone: Mapping[int, Collection[int]] | None = None,
    change: Change = lambda step, client, message: message,
) -> Collector:
    """The sum. gone: step -> who drops out before it."""
    collector = Collector(cast.words, cast.contributors, least, colluding=0.1, session=SESSION)
    messages: Mapping[int, bytes] = dict.fromkeys(cast.contributors, b"")
    for step in range(4):
        for number, message in messages.items():
            if number not in (gone or {}).get(step, ()):
                one = cast.contributors[number]
                reply = one.answer(message) if step else one.advertise()
                collector.receive(number, change(step, number, reply))
        messages = collector.advance()
    assert not messages
    return collector
