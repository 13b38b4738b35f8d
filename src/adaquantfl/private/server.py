"""The server's end of private rounds. It is an `aq.Server` whose rounds have four steps and end with one sum.

    orders = server.open([3, 7, 9], eta=0.1)
    while orders:
        server.receive(3, reply)                 the reply to this step's message; Refused with the reason
        orders = server.further()                the next step's messages; none where the sum is known
    round = server.close()

Model, server step and downlink are those of `aq.Server`: for them, the mean update is the update of a single client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np

from ..codecs.raw import encode_float32
from ..codecs.varints import varint
from ..errors import ConfigError, EngineError, FrameError, Refused
from ..protocol.arrays import EXACT_NAMES, Weights
from ..protocol.messages import Reply
from ..protocol.replies import Heard
from ..protocol.server import EVALUATION, Orders, Round
from ..protocol.server import Server as PlainServer
from ..protocol.stages import Stages
from ..protocol.state import ServerState
from ..quantizers.streams import stream_key
from ..rules import FullPrecision
from . import controller
from .accounting import epsilon
from .collector import STEPS, Collector
from .controller import Control
from .masks import Words
from .modular import OWN, Projection, RoundPlan, summed_facts
from .neighbours import degree
from .noise import gaussian
from .packet import DIVERGED, ORDER, Packet, kind_of
from .settings import Central, Noisy, Private, check, mode

_MEAN = 0  # the client as which the mean of all updates goes through the plain server


@dataclass
class _Exchange:
    """The messages of an open round.

    up, down, models: bytes that clients sent, and were sent; of the latter, those that lead to the model.
    """

    plan: RoundPlan
    projection: Projection
    collector: Collector
    asked: tuple[int, ...]
    messages: Mapping[int, bytes] = field(default_factory=dict)  # of the present step, after the first
    absent: dict[int, str] = field(default_factory=dict)
    clipped: int = 0
    up: int = 0
    down: int = 0
    models: int = 0


class Server(PlainServer):
    """Opens and closes private rounds over any transport: bytes in, bytes out. Every client counts the same.

    Args:
        weights: a flat float32 vector, or a mapping of named arrays.
        private: a mode: "masked", "central", "distributed", or an object such as `Masked(bits=8)`.
        stages: downlink, step, cohort and seed in one object, in place of `settings`.
        exact: as for `aq.Server`: such statistics are summed under masks too, but not rounded.
        fresh: as for `aq.Server`.
        settings: downlink, step, cohort, min_clients and seed as for `aq.Server`.

    >>> import numpy as np
    >>> server = Server(np.zeros(300, dtype=np.float32), "masked", seed=0)
    >>> from adaquantfl.private import Client
    >>> clients = [Client(number) for number in range(4)]
    >>> messages = server.open([0, 1, 2, 3], eta=0.1)
    >>> for number, client in enumerate(clients):
    ...     server.receive(number, client.reply(client.open(messages[number]) + 1, loss=2.5))
    >>> while messages := server.further():
    ...     for number, client in enumerate(clients):
    ...         server.receive(number, client.answer(messages[number]))
    >>> round = server.close()
    >>> round.facts["clients"], round.facts["round_loss"]
    (4, 2.5)
    """

    _exchange: _Exchange | None

    def __init__(
        self,
        weights: Weights,
        private: Private | str | bool = True,
        *,
        stages: Stages | None = None,
        exact: Collection[str] = EXACT_NAMES,
        fresh: bool = False,
        **settings: Any,
    ) -> None:
        made = stages or Stages(FullPrecision(), **settings)
        self.private = check(mode(private), made)
        super().__init__(weights, exact=exact, stages=made, fresh=fresh)
        if isinstance(self.private, Noisy) and self.current.layout.buffers:
            raise ConfigError(
                f"private = {self.private.name!r} cannot protect statistics such as BatchNorm's, which are no "
                "update of bounded length: use GroupNorm, or private = 'masked'."
            )
        self._control, self._exchange = Control(), None

    @property
    def clients_keep(self) -> bool:
        """Clients keep their update from one step to the next."""
        return True

    def open(
        self,
        clients: Sequence[int] | None = None,
        eta: float = 1.0,
        loss: float | None = None,
        expected: int | None = None,
    ) -> Mapping[int, bytes]:
        """Begin a round: the order of each client. BudgetSpent where the round would cost too much privacy."""
        stages, state = self.stages, self.current
        shares = stages.cohort.shares(stages.seed, state.round, clients)
        asked = sorted(set(clients or ()) if shares is None else shares.weights)
        least = max(stages.cohort.least, self.private.least(len(asked)))
        degree(len(asked), len(asked) - least, int(self.private.colluding * len(asked)))
        model, layout = state.trajectory.model.weights, state.layout
        wanted = RoundPlan(state.round, len(asked), least, eta=float(eta))
        plan = controller.plan(self.private, self._control, wanted, stages.seed, model, layout.lengths)
        super().open([_MEAN], eta, loss)
        projection = Projection(plan, layout.lengths)
        words = Words(projection.count, plan.bits, 0 if plan.noisy else 2 + len(layout.lengths) + layout.buffers)
        collector = Collector(words, asked, least, self.private.colluding)
        self._exchange = _Exchange(plan, projection, collector, tuple(asked))
        for client in asked:
            self._note_sent(client, self._held_by(client))
        return Orders({client: partial(self.order, client) for client in asked})

    def order(self, client: int, holds: bytes | EllipsisType | None = ..., evaluate: bool = False) -> bytes:
        """One client's message of the present step."""
        if evaluate:
            return super().order(client, holds, evaluate=True)
        exchange = self._exchanging()
        if client not in exchange.asked:
            raise EngineError(f"Client {client} was not asked in this round.")
        if client in exchange.messages:
            return exchange.messages[client]
        if holds is None and self._held_by(client) is not None:
            self._note_sent(client, None)
        own = OWN.pack(stream_key(self.stages.seed, exchange.plan.round, client), client)
        parts = super().order(client, holds, evaluate=True), exchange.plan.pack(), own
        return Packet(ORDER, exchange.collector.session, parts).pack()

    def receive(self, client: int, reply: bytes) -> None:
        """Take a client's reply to the message of this step. Refused with the reason where it cannot be used."""
        exchange, reply = self._exchanging(), bytes(reply)
        exchange.up += len(reply)
        try:
            if kind_of(reply) == DIVERGED:
                raise FrameError("Its training has diverged: lower the learning rate.")
            exchange.collector.receive(client, reply)
        except FrameError as error:
            reason = f"the reply of client {client} was refused. {error}"
            if client in exchange.asked and client not in exchange.collector.heard:
                exchange.absent[client] = reason
            raise Refused(reason) from error

    def absent(self, client: int, reason: str) -> None:
        """Note why a client dropped out."""
        self._exchanging().absent.setdefault(client, reason)

    def further(self) -> Mapping[int, bytes]:
        """End the step. Return the next step's messages; none where the sum is known. EngineError: too few clients."""
        exchange, collector = self._exchanging(), self._exchanging().collector
        if collector.sum is not None:
            return {}
        for client in set(collector.asked) - set(collector.heard):
            exchange.absent.setdefault(client, f"no {STEPS[collector.step]}.")
        exchange.messages = collector.advance()
        exchange.down += sum(map(len, exchange.messages.values()))
        if not exchange.messages:
            self._open_sum(exchange)
        return exchange.messages

    def close(self, weights: Weights | None = None) -> Round:
        """End the round with the sum. weights: the new model, where somebody else has made it from `heard`."""
        exchange, before = self._exchanging(), self.current
        if exchange.collector.sum is None:
            raise EngineError("The sum is not known yet: call further() until it returns no messages.")
        closed, n = super().close(weights), len(exchange.collector.alive)
        ledger = before.ledger.plus(
            wire_bytes_up=exchange.up,
            payload_bytes_up=sum(exchange.collector.words.sizes) * n,
            wire_bytes_down=exchange.down,
            payload_bytes_down=exchange.models,
        )
        log = replace(self.current.log, holds=before.log.holds).noted(exchange.asked, before.log.round)
        log = log.noted(exchange.absent, None)
        self._begin_at(replace(self.current, ledger=ledger, log=log))
        self._exchange = None
        plan, projection = exchange.plan, exchange.projection
        facts = {**closed.facts, **asdict(ledger), "s": plan.levels or None, "clients": n}
        facts["masked_bits"] = plan.bits * projection.count / projection.dimension
        if plan.noisy:
            facts |= {"round_loss": None, "epsilon": self.epsilon}
        else:
            facts["clipped_coordinates"] = exchange.clipped
        if exchange.absent:
            facts["missing"] = dict(sorted(exchange.absent.items()))
        of_others = ("bits_per_element", "paper_bits")  # what the paper's formula says of what others send
        return replace(closed, facts={name: value for name, value in facts.items() if name not in of_others})

    def _open_sum(self, exchange: _Exchange) -> None:
        """Hand the mean of the updates to the plain server, as the reply of one client, and learn from the sum."""
        plan, projection, private, state = exchange.plan, exchange.projection, self.private, self.current
        assert exchange.collector.sum is not None
        values, facts = exchange.collector.sum
        n, numbers = len(exchange.collector.alive), exchange.collector.words.centred(values).astype(np.float64)
        impossible = 0 if plan.noisy else int(np.count_nonzero(np.abs(numbers) > n * plan.levels))
        if impossible:
            raise EngineError(
                f"Round {plan.round + 1}: {impossible:,} of {len(numbers):,} sums are larger than {n} clients can make "
                "them, so that a client lied or is broken. The round does not count, and nobody can tell who it was."
            )
        loss, buffers = 0.0, state.trajectory.model.buffers
        if isinstance(private, Noisy):
            spent = self._control.spent + controller.cost(private, plan, state.layout.dimension)
            self._control = replace(self._control, spent=spent)
            if isinstance(private, Central):
                numbers += gaussian(len(numbers), private.noise * plan.longest)
        kept = numbers / n * projection.steps
        if not plan.noisy:
            loss, exchange.clipped, squares, statistics = summed_facts(facts, len(state.layout.lengths))
            loss, buffers = loss / n, (statistics / n).astype(np.float32)
            squares = squares * np.square(plan.steps) / n
            counts, energy = projection.counts.astype(np.float64), float(np.square(kept).sum())
            self._control = controller.learnt(self._control, plan, squares, energy, counts, n)
        packed = encode_float32(buffers) if len(buffers) else b""
        token = self._opened().orders[_MEAN].token(state.log.digest)
        update, others = encode_float32(projection.back(kept)), state.trajectory.model.others
        super().receive(_MEAN, Reply(state.round, loss, n, update, packed, others, token).pack())

    def return_to(self, earlier: ServerState) -> None:
        """Forget what came after this state, an open round included; privacy that was spent stays spent."""
        super().return_to(earlier)
        self._exchange = None

    def state(self) -> dict[str, Any]:
        """All of it as a plain tree between two rounds. EngineError in the middle of one: keys are not written down."""
        if self._exchange is not None:
            raise EngineError("A private round is open: its state is not written down. Close it first.")
        return {**super().state(), "private": dict(vars(self._control))}

    @staticmethod
    def resume(tree: Mapping[str, Any], private: Private | str, stages: Stages) -> Server:
        """A server from what `state` wrote down."""
        server = Server.__new__(Server)
        plain = PlainServer.restore({name: tree[name] for name in tree if name != "private"}, stages=stages)
        server.__dict__.update(vars(plain))
        server.private = check(mode(private), stages)
        server._control, server._exchange = Control(**tree["private"]), None
        return server

    def _exchanging(self) -> _Exchange:
        if self._exchange is None:
            raise EngineError("No private round is open: call open() first.")
        return self._exchange

    def _note_sent(self, client: int, held: int | None) -> None:
        """Count the bytes of a client's order."""
        exchange, size = self._exchanging(), self._addressed(EVALUATION, held).size
        empty = Packet(ORDER, exchange.collector.session, (b"", exchange.plan.pack(), bytes(OWN.size)))
        exchange.down += size + len(varint(size)) - 1 + len(empty.pack())
        exchange.models += size

    @property
    def mean(self) -> Heard:
        """The reply that stands for the sum of the open round, once it is known.

        Its examples are the clients in the sum. Its loss is their mean loss; 0 with noise.
        """
        return self._opened().heard[_MEAN]

    @property
    def epsilon(self) -> float:
        """The privacy that was spent so far; 0 without noise."""
        private = self.private
        return epsilon(self._control.spent, private.delta) if isinstance(private, Noisy) else 0.0
