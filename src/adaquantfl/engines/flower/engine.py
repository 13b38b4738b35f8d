"""The engine: clients are Flower nodes, simulated on this machine or SuperNodes on any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w
from flwr.serverapp import Grid

from ...protocol.cohort import Cohort
from ...protocol.server import Server
from ...runs.config import Config
from ..base import Engine
from ..calls import SHARED, Call
from .exchange import Exchange
from .node_keys import client_keys
from .nodes import Inbox, Nodes
from .polling import poll_replies_sooner
from .records import Questions

_CONNECT_WITHIN = 120.0  # seconds that nodes have to appear, or round_timeout where that is longer
_POLL_SIMULATION, _POLL_DEPLOYMENT = 0.02, 0.2  # seconds between looks for replies: in memory, and over HTTP


class FlowerEngine(Engine):
    """Plays the clients of a configuration over a `Grid`; see `Engine`.

    workers: how many simulated clients work side by side on this machine; None where each has a host of its own.
    stopped: asked now and then; where it says yes, the run ends as with Ctrl-C.
    """

    def __init__(
        self, config: Config, grid: Grid, workers: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(config)
        self.name = "flower" if workers else "flower-deployment"  # type: ignore[misc]  # one class is two engines
        self.workers = workers
        self._stopped = stopped
        if workers is None:
            poll_replies_sooner()
        self._text = tomli_w.dumps(config.to_dict())
        self._inbox = Inbox(grid)
        keys = client_keys(config.clients) if workers is None else {}  # a simulation's nodes are its own
        self._nodes = Nodes(self._inbox, config.clients, keys)
        self._await_clients()

    def carry(self, server: Server, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        if not calls:
            return
        calls = [call.ordered(server) for call in calls]
        shares, own = self._share(calls)
        questions = Questions(self._text, server, calls)
        exchange = Exchange(self._inbox, self._nodes, questions, shares, self.config.round_timeout, self.workers)
        try:
            yield from exchange.step()
            while not exchange.done or own:
                if own:
                    self.player.hold(server.held)
                    yield (place := own.pop(0)), self.player.answer(calls[place])
                else:
                    self._pause()
                yield from exchange.step()
            yield from exchange.give_up()
        finally:
            exchange.close()

    def close(self) -> None:
        """Nothing to let go of: Flower's processes end with its run."""

    def _share(self, calls: list[Call]) -> tuple[dict[int, list[int]], list[int]]:
        """Client -> places of the calls that its node answers; and those that the server answers itself.

        Simulated clients share the work that anyone may do. Others are not asked for it: their word would have to be
        trusted, and the server has the time while it waits for them.
        """
        shares: dict[int, list[int]] = {}
        for place, call in enumerate(calls):
            if call.name not in SHARED:
                shares.setdefault(call.client, []).append(place)
        open_to_all = [place for place, call in enumerate(calls) if call.name in SHARED]
        if self.workers is None:
            return shares, open_to_all
        takers = list(shares) or list(self._nodes.of)[: self.workers]
        for turn, place in enumerate(open_to_all):
            shares.setdefault(takers[turn % len(takers)], []).append(place)
        return shares, []

    def _await_clients(self) -> None:
        """Wait until every client's node is there; where `min_clients` allows it, start without the late ones."""
        seconds = max(self.config.round_timeout, _CONNECT_WITHIN)
        deadline = time.monotonic() + seconds
        while not self._nodes.complete and time.monotonic() < deadline:
            self._nodes.refresh()
            self._pause()
        missing = {c: self._nodes.lost(c) for c in range(self.config.clients) if c not in self._nodes.of}
        cohort = Cohort(least=self.config.min_clients)
        cohort.check(missing, self.config.clients, f"Waited {seconds:g} s for SuperNodes")

    def _pause(self) -> None:
        if self._stopped():
            raise KeyboardInterrupt
        time.sleep(_POLL_SIMULATION if self.workers else _POLL_DEPLOYMENT)
