"""The engine: clients are Flower nodes, simulated on this machine or SuperNodes on any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w
from flwr.serverapp import Grid

from ...config import Config
from ...federated.messages import Model
from ...federated.quorum import check_quorum, reason_of
from ..calls import Call, CallEngine, Failure, perform
from .exchange import Exchange
from .mail import Mail
from .nodes import Nodes

_CONNECT_WITHIN = 120.0  # seconds that nodes have to appear, or round_timeout where that is longer
_PAUSE_HERE, _PAUSE_THERE = 0.02, 0.2  # seconds between looks for replies: in memory, and over HTTP


class FlowerEngine(CallEngine):
    """Plays the clients of a configuration over a `Grid`; see `Engine`.

    workers: how many simulated clients work side by side on this machine; None where each has a host of its own.
    stopped: asked now and then; where it says yes, the run ends as with Ctrl-C.
    """

    def __init__(
        self, config: Config, grid: Grid, workers: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(config)
        self.name = "flower" if workers else "flower-deployment"
        self.workers = workers
        self._stopped = stopped
        self._text = tomli_w.dumps({key: value for key, value in config.to_dict().items() if key != "link"})
        self._mail = Mail(grid)
        self._nodes = Nodes(self._mail, config.clients)
        self._await_clients()

    def carry(self, model: Model, calls: list[Call]) -> Iterator[Any]:
        finished: dict[int, Any] = {}
        yielded = 0
        for number, answer in self._answers(model, calls):
            finished[number] = answer
            while yielded in finished:
                yield finished.pop(yielded)
                yielded += 1

    def close(self) -> None:
        """Nothing to let go of: Flower's processes end with its run."""

    def _answers(self, model: Model, calls: list[Call]) -> Iterator[tuple[int, Any]]:
        """Answers as they come, with the numbers of their calls."""
        shares, own = self._share(calls)
        exchange = Exchange(
            self._mail, self._nodes, self._text, model, calls, shares, self.config.round_timeout, self.workers
        )
        try:
            yield from exchange.step()
            while not exchange.done or own:
                if own:
                    number = own.pop(0)
                    yield number, self._perform(calls[number], model)
                else:
                    self._pause()
                yield from exchange.step()
            yield from exchange.give_up()
        finally:
            exchange.close()

    def _share(self, calls: list[Call]) -> tuple[dict[int, list[int]], list[int]]:
        """Client -> numbers of the calls that its node answers; and those that the server answers itself.

        Simulated clients share the work on the test set. Others are not asked: their word for it would have to be
        trusted, and the server has the time while it waits for them.
        """
        shares: dict[int, list[int]] = {}
        for number, (name, arguments) in enumerate(calls):
            if name != "correct":
                shares.setdefault(arguments[0], []).append(number)
        open_to_all = [number for number, (name, _) in enumerate(calls) if name == "correct"]
        if self.workers is None or not shares:
            return shares, open_to_all
        for turn, number in enumerate(open_to_all):
            list(shares.values())[turn % len(shares)].append(number)
        return shares, []

    def _perform(self, call: Call, model: Model) -> Any:
        try:
            return perform(self.trainer, call, model)
        except Exception as error:
            return Failure(reason_of(error))

    def _await_clients(self) -> None:
        """Wait until every client's node is there; where `min_clients` allows it, go on without the late ones."""
        patience = max(self.config.round_timeout, _CONNECT_WITHIN)
        deadline = time.monotonic() + patience
        while not self._nodes.complete and time.monotonic() < deadline:
            self._nodes.refresh()
            self._pause()
        missing = {c: self._nodes.lost(c) for c in range(self.config.clients) if c not in self._nodes.of}
        check_quorum(missing, self.config.clients, self.config, f"Waited {patience:g} s for SuperNodes")

    def _pause(self) -> None:
        if self._stopped():
            raise KeyboardInterrupt
        time.sleep(_PAUSE_HERE if self.workers else _PAUSE_THERE)
