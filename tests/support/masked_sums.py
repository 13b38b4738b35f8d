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
        self.contributors = {
            number: Contributor(number, SESSION, *(rng.bytes(32) for _ in range(3))) for number in range(clients)
        }
        self.values = {n: rng.integers(0, 2**words.bits, words.count).astype(words.dtype) for n in range(clients)}
        self.facts = {n: rng.integers(0, 2**63, words.facts).astype("<u8") for n in range(clients)}
        self.masked: dict[int, bytes] = {}

    def answer(self, step: int, number: int, message: bytes) -> bytes:
        one = self.contributors[number]
        if step == 0:
            return one.advertise()
        if step == 1:
            return one.share(message)
        if step == 2:
            self.masked[number] = one.mask(message, self.words, self.values[number], self.facts[number])
            return self.masked[number]
        return one.reveal(message)

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
    collector = Collector(SESSION, cast.words, least, colluding=0.1)
    messages: Mapping[int, bytes] = dict.fromkeys(cast.contributors, b"")
    for step in range(4):
        for number, message in messages.items():
            if number not in (gone or {}).get(step, ()):
                collector.receive(number, change(step, number, cast.answer(step, number, message)))
        messages = collector.advance()
    assert not messages
    return collector
