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
from dataclasses import asdict, replace
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np

from ..codecs.raw import encode_float32
from ..codecs.varints import varint
from ..errors import ConfigError, EngineError, FrameError, Refused
from ..protocol.arrays import EXACT_NAMES, Weights
from ..protocol.messages import Reply
from ..protocol.server import EVALUATION, Orders, Round
from ..protocol.server import Server as PlainServer
from ..protocol.stages import Stages
from ..protocol.state import Ledger, ServerState
from ..quantizers.streams import stream_key
from ..rules import FullPrecision
from . import controller
from .accounting import epsilon
from .collector import STEPS, Collector, Sum
from .contributor import new_session
from .controller import Control
from .modular import BUFFER_STEP, LOSS_STEP, NORM_STEP, OWN, Projection, RoundPlan, centred, from_fixed, words
from .neighbours import degree
from .noise import gaussian
from .packet import DIVERGED, ORDER, Packet, kind_of
from .settings import Central, Masked, Masks, Noisy, Private, mode

_MEAN = 0  # the client as which the mean of all updates goes through the plain server


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
        self._start(Control.of(self.private))

    def _start(self, control: Control) -> None:
        self._control = control
        self._collector: Collector | None = None
        self._plan: RoundPlan | None = None
        self._messages: dict[int, bytes] = {}
        self._asked_for: tuple[int, ...] = ()
        self._absent: dict[int, str] = {}
        self._clipped = 0
        self._up = self._down = self._models = 0  # bytes that clients sent and were sent; of the latter, the model's

    @property
    def clients_keep(self) -> bool:
        """Clients keep their update from one step to the next."""
        return True

    def open(
        self, clients: Sequence[int] | None = None, eta: float = 1.0, loss: float | None = None
    ) -> Mapping[int, bytes]:
        """Begin a round: the order of each client. BudgetSpent where the round would cost too much privacy."""
        stages, state = self.stages, self.current
        shares = stages.cohort.shares(stages.seed, state.round, clients)
        asked = sorted(set(clients or ()) if shares is None else shares.weights)
        least = max(stages.cohort.least, self.private.least(len(asked)))
        degree(len(asked), len(asked) - least, int(self.private.colluding * len(asked)))
        model, layout = state.trajectory.model, state.layout
        plan = controller.plan(
            self.private, self._control, round=state.round, clients=len(asked), least=least, eta=float(eta),
            seed=stages.seed, model=model.weights, lengths=layout.lengths,
        )  # fmt: skip
        self._start(self._control)
        super().open([_MEAN], eta, loss)
        self._plan, self._asked_for, session = plan, tuple(asked), new_session()
        projection, tensors = Projection(plan, layout.lengths), len(layout.lengths)
        what = words(plan, projection.count, tensors, layout.buffers)
        self._collector = Collector(session, what, least, self.private.colluding)
        self._projection = projection
        for client in asked:
            self._note_sent(client, self._held_by(client))
        return Orders({client: partial(self.order, client) for client in asked})

    def order(self, client: int, holds: bytes | EllipsisType | None = ..., evaluate: bool = False) -> bytes:
        """One client's message of the present step."""
        if evaluate:
            return super().order(client, holds, evaluate=True)
        if client not in self._asked_for:
            raise EngineError(f"Client {client} was not asked in this round.")
        if client in self._messages:
            return self._messages[client]
        return self._ordered(client, holds)

    def receive(self, client: int, reply: bytes) -> None:
        """Take a client's reply to the message of this step. Refused with the reason where it cannot be used."""
        collector, reply = self._summing(), bytes(reply)
        self._up += len(reply)
        try:
            if client not in self._asked_for:
                raise FrameError("It was not asked in this round.")
            if kind_of(reply) == DIVERGED:
                raise FrameError("Its training has diverged: lower the learning rate.")
            collector.receive(client, reply)
        except FrameError as error:
            reason = f"the reply of client {client} was refused. {error}"
            if client in self._asked_for and client not in collector.heard:
                self._absent[client] = reason
            raise Refused(reason) from error

    def absent(self, client: int, reason: str) -> None:
        """Note why a client dropped out."""
        self._absent.setdefault(client, reason)

    def further(self) -> Mapping[int, bytes]:
        """End the step. Return the next step's messages; none where the sum is known. EngineError: too few clients."""
        collector = self._summing()
        if collector.finished:
            return {}
        step, before = STEPS[collector.step], collector.asked or self._asked_for
        for client in set(before) - set(collector.heard):
            self._absent.setdefault(client, f"no {step}.")
        self._messages = collector.advance()
        self._down += sum(map(len, self._messages.values()))
        if collector.sum is not None:
            self._open_sum(collector.sum)
        return self._messages

    def close(self, weights: Weights | None = None) -> Round:
        """End the round with the sum. weights: the new model, where somebody else has made it from `heard`."""
        collector, state = self._summing(), self.current
        if collector.sum is None:
            raise EngineError("The sum is not known yet: call further() until it returns no messages.")
        closed = super().close(weights)
        self._collector, n = None, len(collector.sum.clients)
        ledger = self._settle(state, sum(collector.words.sizes) * n)
        return replace(closed, facts=self._facts(closed.facts, n, ledger))

    def _open_sum(self, total: Sum) -> None:
        """Hand the mean of the updates to the plain server, as the reply of one client, and learn from the sum."""
        plan, private, state, n = self._told(), self.private, self.current, len(total.clients)
        numbers = centred(total.values, plan.bits).astype(np.float64)
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
        kept = numbers / n * self._projection.steps
        if isinstance(private, Masked):
            facts, tensors = total.facts, len(state.layout.lengths)
            loss, self._clipped = float(from_fixed(facts[:1], LOSS_STEP)[0]) / n, int(from_fixed(facts[1:2], 1.0)[0])
            squares = from_fixed(facts[2 : 2 + tensors], NORM_STEP) * np.square(plan.steps) / n
            buffers = (from_fixed(facts[2 + tensors :], BUFFER_STEP) / n).astype(np.float32)
            counts, energy = self._projection.counts.astype(np.float64), float(np.square(kept).sum())
            self._control = controller.learnt(private, self._control, plan, squares, energy, counts, n)
        packed = encode_float32(buffers) if len(buffers) else b""
        token = self._opened().orders[_MEAN].token(state.log.digest)
        update, others = encode_float32(self._projection.back(kept)), state.trajectory.model.others
        super().receive(_MEAN, Reply(state.round, loss, n, update, packed, others, token).pack())

    def return_to(self, earlier: ServerState) -> None:
        """Forget what came after this state, an open round included; privacy that was spent stays spent."""
        super().return_to(earlier)
        self._start(self._control)

    def state(self) -> dict[str, Any]:
        """All of it as a plain tree between two rounds. EngineError in the middle of one: keys are not written down."""
        if self._collector is not None:
            raise EngineError("A private round is open: its state is not written down. Close it first.")
        return {**super().state(), "private": self._control.tree()}

    @staticmethod
    def resume(tree: Mapping[str, Any], private: Private | str, stages: Stages) -> Server:
        """A server from what `state` wrote down."""
        server = Server.__new__(Server)
        plain = PlainServer.restore({name: tree[name] for name in tree if name != "private"}, stages=stages)
        server.__dict__.update(vars(plain))
        server.private = check(mode(private), stages)
        server._start(Control.read(tree["private"]))
        return server

    def _summing(self) -> Collector:
        if self._collector is None:
            raise EngineError("No private round is open: call open() first.")
        return self._collector

    def _told(self) -> RoundPlan:
        if self._plan is None:
            raise EngineError("No private round is open: call open() first.")
        return self._plan

    def _ordered(self, client: int, holds: bytes | EllipsisType | None) -> bytes:
        """A client's order: the model in a message of the plain server, the plan, and the key of its rounding."""
        if holds is None and self._held_by(client) is not None:
            self._note_sent(client, None)
        plan = self._told()
        own = OWN.pack(stream_key(self.stages.seed, plan.round, client), client)
        parts = super().order(client, holds, evaluate=True), plan.pack(), own
        return Packet(ORDER, self._summing().session, parts).pack()

    def _note_sent(self, client: int, held: int | None) -> None:
        """Count the bytes of a client's order."""
        size = self._addressed(EVALUATION, held).size
        empty = Packet(ORDER, self._summing().session, (b"", self._told().pack(), bytes(OWN.size)))
        self._down += size + len(varint(size)) - 1 + len(empty.pack())
        self._models += size

    def _settle(self, before: ServerState, masked: int) -> Ledger:
        """Count the bytes that were sent to and by the clients, and note what model they hold."""
        ledger = before.ledger.plus(
            wire_bytes_up=self._up, payload_bytes_up=masked, wire_bytes_down=self._down, payload_bytes_down=self._models
        )
        log = replace(self.current.log, holds=before.log.holds).sent_to(self._asked_for, list(self._absent))
        super().return_to(replace(self.current, ledger=ledger, log=log))
        return ledger

    def _facts(self, facts: Mapping[str, Any], n: int, ledger: Ledger) -> dict[str, Any]:
        """The columns of a private round, in place of those of the mean."""
        plan = self._told()
        known = {name: value for name, value in facts.items() if name not in ("bits_per_element", "paper_bits")}
        totals = {name: value for name, value in asdict(ledger).items() if name != "paper_bits"}
        noisy = isinstance(self.private, Noisy)
        return {
            **known,
            **totals,
            "s": plan.levels or None,
            "clients": n,
            "masked_bits": plan.bits * self._projection.count / self._projection.dimension,
            **({"round_loss": None, "epsilon": self.epsilon} if noisy else {"clipped_coordinates": self._clipped}),
            **({"missing": dict(sorted(self._absent.items()))} if self._absent else {}),
        }

    @property
    def summed(self) -> int:
        """How many clients are in the sum of the open round, once it is known."""
        total = self._summing().sum
        return 0 if total is None else len(total.clients)

    @property
    def mean_loss(self) -> float | None:
        """The mean loss of the open round, once its sum is known; None with noise."""
        return None if self._told().noisy else self._opened().heard[_MEAN].loss

    @property
    def epsilon(self) -> float:
        """The privacy that was spent so far; 0 without noise."""
        private = self.private
        return epsilon(self._control.spent, private.delta) if isinstance(private, Noisy) else 0.0


def check(private: Private, stages: Stages) -> Masks:
    """Refuse what needs single updates: ConfigError says why. Return the mode."""
    if not isinstance(private, Masks):
        raise ConfigError("private = 'off': use aq.Server, which sees every update.")
    if not isinstance(stages.rule, FullPrecision):
        raise ConfigError(
            f"rule = {stages.rule.name!r} does not go with private = {private.name!r}, whose own rule sees sums only: "
            "leave the rule out."
        )
    if not stages.step.averages:
        raise ConfigError(
            f"step = {stages.step.name!r} compares the clients' updates with each other, and with private = "
            f"{private.name!r} nobody sees one: use 'sum', or a server optimizer such as 'adam'."
        )
    if stages.max_update_norm or stages.max_examples:
        raise ConfigError(f"With private = {private.name!r}, max_update_norm and max_examples have nothing to look at.")
    if stages.undo and isinstance(private, Noisy):
        raise ConfigError(
            f"undo looks at the clients' losses, which private = {private.name!r} does not let them tell."
        )
    return private
