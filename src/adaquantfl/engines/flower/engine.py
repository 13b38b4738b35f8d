"""The engine: clients are Flower nodes, simulated on this machine or SuperNodes on any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import tomli_w
from flwr.serverapp import Grid

from ...protocol.downlink import Downlink
from ...protocol.messages import Model
from ...protocol.quorum import check_quorum, reason_of
from ...runs.config import Config
from ..calls import Call, CallEngine, Failure, perform, refuse_feedback
from .exchange import Exchange
from .haste import hurry_server
from .mail import Mail
from .nodes import Nodes
from .records import Questions

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
        refuse_feedback(config)
        super().__init__(config)
        self.name = "flower" if workers else "flower-deployment"
        self.workers = workers
        self._stopped = stopped
        if workers is None:
            hurry_server()
        self._known: tuple[Model, Downlink] | None = None
        self._text = tomli_w.dumps(config.to_dict())
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
        if not calls:
            return
        shares, own = self._share(calls)
        questions = Questions(self._text, calls, model, self._way_to(model))
        exchange = Exchange(self._mail, self._nodes, questions, shares, self.config.round_timeout, self.workers)
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

    def _way_to(self, model: Model) -> Downlink:
        """What leads to this model: as the server has it, or nothing, but the same for one model throughout."""
        if self._known is None or self._known[0] is not model:
            number = self._known[1].round + 1 if self._known else 0
            ours = Downlink.start(number, model)
            theirs = self.downlink if self.downlink and self.downlink.digest == ours.digest else None
            self._known = model, theirs or ours
        return self._known[1]

    def _share(self, calls: list[Call]) -> tuple[dict[int, list[int]], list[int]]:
        """Client -> numbers of the calls that its node answers; and those that the server answers itself.

        Simulated clients share the work that anyone may do. Others are not asked for it: their word would have to be
        trusted, and the server has the time while it waits for them.
        """
        shares: dict[int, list[int]] = {}
        for number, (name, arguments) in enumerate(calls):
            if name in ("train", "loss"):
                shares.setdefault(arguments[0], []).append(number)
        open_to_all = [number for number, (name, _) in enumerate(calls) if name not in ("train", "loss")]
        if self.workers is None:
            return shares, open_to_all
        takers = list(shares) or list(self._nodes.of)[: self.workers]
        for turn, number in enumerate(open_to_all):
            shares.setdefault(takers[turn % len(takers)], []).append(number)
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
