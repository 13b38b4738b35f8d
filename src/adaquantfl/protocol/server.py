"""The server's end of the conversation: bytes in, bytes out. It does not know who carries them, and when.

One round is

    orders = server.open([3, 7, 9], eta=0.1)     the model and the plan, as bytes for each client
    server.order(3, holds=digest)                the same, for a client of which the carrier knows what it holds
    server.receive(3, reply)                     in any order; Refused with the reason
    round = server.close()                       the new weights, and what was measured
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import numpy as np

from ..errors import AdaQuantError, CheckpointError, ConfigError, EngineError, Refused, called
from ..quantizers.base import Quantizer
from ..rules import Rule
from ..rules.checks import started
from . import round as rounds
from .arrays import EXACT_NAMES, Layout, Model, Weights
from .cohort import Cohort
from .downlink import Whole
from .limits import REFUSE, measured
from .messages import Order
from .parcels import Held, Log, digest_of, fresh_start
from .replies import OpenRound
from .stages import Stages
from .state import ServerState, Trajectory
from .step import ServerStep

EVALUATION = Order(round=0, s=None, eta=0.0, key=0, evaluate=True)


@dataclass(frozen=True, eq=False)
class Round:
    """A closed round. facts: what was measured, by the names of the history's columns."""

    layout: Layout
    model: Model
    facts: dict[str, Any]

    @property
    def weights(self) -> Weights:
        """The new model, in the form in which the server was given it."""
        return self.layout.join(self.model)


class Server:
    """Opens and closes rounds over any transport, in any process: bytes in, bytes out.

    Arrays keep their types; what is quantized is kept in float32 between rounds, also where the type is float64.

    Args:
        weights: a flat float32 vector, or a mapping of named arrays.
        rule: chooses the levels of each round: a name of `adaquantfl methods`, or an object such as `AdaQuant(s0=2)`.
        quantizer: as for `aq.compress`; "" is the rule's own, or the paper's.
        scope: a norm for each "tensor", for the "whole" update, or for buckets of a number of elements.
        downlink: "exact" sends what turns the model that a client holds into the new one. "model" sends the whole
            model. "late" sends the model's change quantized, and later what it left out. "" is the rule's own, or
            "exact".
        seed: of all random numbers.
        norm: "l2" or "linf"; "" is the quantizer's usual one.
        codec: as for `aq.compress`; it never changes the model.
        sparsity: of quantizers without levels (`stc`): one element in this many is sent.
        feedback: whether clients keep what they left out for later; None: as the rule or the quantizer is meant.
        step: the server step: "sum", "momentum", "nesterov", "adam", "median", "trimmed-mean", "krum", or an object.
        min_clients: how many must answer; 0 is all that were asked.
        cohort: clients whose sizes are known beforehand, and how they are drawn. What clients say of their sizes is
            then ignored.
        max_update_norm: the largest l2 norm of a decoded update: a number, or "10x" for ten times the round's median.
        norm_action: "refuse" a larger update, or "clip" it, which scales it down to that norm.
        max_examples: a number, or "10x" for ten times the round's median. A client that says it has more counts as one
            that has this many.
        loss_smoothing: of the rounds' losses: 0.9 is over about ten rounds.
        undo: roll back a round whose clients saw this many times the usual loss, or a loss that is not finite, and the
            one before it; the next rounds use more levels. 0: never.
        averages: whether the new model is a mean over the clients, with whatever else somebody makes of it; None: as
            the step is.
        exact: patterns of names of arrays that are not to be quantized, by default BatchNorm's statistics.
        fresh: the weights are random, so that others would do as well: they are rounded to a sixth of the bytes, and
            training starts from the rounded ones. Leave it off for a model that somebody has trained.
        secrets: client -> bytes that the client was started with. Its replies must then be signed, so that nobody else
            can answer for it.
        stages: all settings in one object, in place of the above.

    >>> import numpy as np
    >>> server, clients = Server(np.zeros(3, dtype=np.float32), rule="adaquant"), {}
    >>> from adaquantfl import Client
    >>> for client, order in server.open([0, 1], eta=0.1).items():
    ...     clients[client] = Client(client)
    ...     weights = clients[client].open(order)
    ...     server.receive(client, clients[client].reply(weights + 1, loss=2.3, examples=10))
    >>> round = server.close()
    >>> len(round.weights), round.facts["clients"], round.facts["s"]
    (3, 2, 3)
    """

    _state: ServerState
    _before: ServerState  # the open round
    _round: OpenRound | None

    def __init__(
        self,
        weights: Weights,
        *,
        rule: Rule | str = "auto",
        quantizer: str | Quantizer = "",
        scope: str | int = "tensor",
        downlink: str | Whole = "",
        seed: int = 0,
        norm: str = "",
        codec: str = "auto",
        sparsity: int = 400,
        feedback: bool | None = None,
        step: str | ServerStep = "sum",
        min_clients: int = 0,
        cohort: Cohort | None = None,
        max_update_norm: float | str = 0.0,
        norm_action: str = REFUSE,
        max_examples: float | str = 0,
        loss_smoothing: float = 0.0,
        undo: float = 0.0,
        averages: bool | None = None,
        exact: Iterable[str] = EXACT_NAMES,
        fresh: bool = False,
        secrets: Mapping[int, bytes] | None = None,
        stages: Stages | None = None,
    ) -> None:
        self.stages = stages or Stages(
            rule, quantizer, scope, downlink, seed, norm=norm, codec=codec, sparsity=sparsity, feedback=feedback,
            step=step, min_clients=min_clients, cohort=cohort, max_update_norm=max_update_norm,
            norm_action=norm_action, max_examples=max_examples, loss_smoothing=loss_smoothing, undo=undo,
            averages=averages,
        )  # fmt: skip
        layout = Layout.of(weights, exact)
        model = _finite(layout, layout.split(weights, copy=True))
        model, log = fresh_start(model, layout.lengths) if fresh else (model, Log(0, digest_of(model)))
        kept = called(f"The server step {self.stages.step.name!r}", self.stages.step.init, layout.dimension)
        first = Trajectory(-1, model, kept, called(self.stages.downlink_words, self.stages.downlink.init, model))
        self._secrets = _checked(secrets)
        self._begin_at(ServerState(0, layout, first, started(self.stages.rule), log))

    @property
    def weights(self) -> Weights:
        """The present model, in the form in which the server was given it."""
        return self._state.layout.join(self.model)

    @property
    def model(self) -> Model:
        """The present model as vectors."""
        return self._state.trajectory.model

    @property
    def held(self) -> Held:
        """The present model as a client holds it once it has opened its order."""
        return Held(self._state.log.round, self.model, self._state.log.digest, self._state.layout)

    @property
    def digest(self) -> bytes:
        """The digest of the present model, which a client that holds it names too (`Client.holds`)."""
        return self._state.log.digest

    @property
    def clients_keep(self) -> bool:
        """Whether clients may keep a part of their updates for later rounds: in the open round, or in one before."""
        return self._state.keeps

    @property
    def current(self) -> ServerState:
        """The state after the last closed round; while a round is open, with that round's plan."""
        return self._state

    @property
    def eta(self) -> float:
        """The learning rate of the open round."""
        return self._opened().eta

    def wants_loss(self) -> bool:
        """Say whether the next `open` needs a new f(w_k); otherwise the last one counts."""
        return rounds.wants_loss(self.stages, self._state)

    def open(
        self,
        clients: Sequence[int] | None = None,
        eta: float = 1.0,
        loss: float | None = None,
        expected: int | None = None,
    ) -> Mapping[int, bytes]:
        """Begin a round and return the bytes for each client, by what the server knows of the model that it holds.

        Args:
            clients: who is asked; None draws them from the cohort.
            eta: the learning rate, which rules look at.
            loss: f(w_k) where it was measured. Without it rules take the one that was given last; where there never was
                one, the mean loss that the last round's clients saw.
            expected: how many of these clients will be asked, where somebody else draws them later; None: all of them.
        """
        if self._round is not None:
            raise EngineError(f"Round {self._state.round + 1} is open. Close it before you open the next.")
        asked = None if clients is None else _numbers(clients)
        for name, value in (("eta", eta), ("loss", 0.0 if loss is None else loss)):
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise EngineError(f"{name} = {value!r}: expected a number.")
        if not (math.isfinite(eta) and eta > 0):
            raise EngineError(f"eta = {eta!r}: the learning rate is above 0.")
        if expected is not None and not (asked and 1 <= expected <= len(asked)):
            raise EngineError(f"expected = {expected!r}: it is a number from 1 to that of the clients that are named.")
        eta, loss = float(eta), None if loss is None else float(loss)
        after, opened = rounds.begin(self.stages, self._state, asked, eta, loss, expected)
        opened.secrets = self._secrets
        self._before, self._given = self._state, {"clients": asked, "eta": eta, "loss": loss, "expected": expected}
        self._state, self._round = after, opened
        try:
            for client in opened.orders:
                self._count(client, self._held_by(client))
        except BaseException:  # nothing was sent, so that the round is not open
            self._begin_at(self._before)
            raise
        return Orders(
            {client: self._addressed(order, self._held_by(client)).pack for client, order in opened.orders.items()}
        )

    def order(self, client: int, holds: bytes | EllipsisType | None = ..., evaluate: bool = False) -> bytes:
        """Return one client's order, for a carrier that knows which model the client holds.

        A round's bytes down are those of the orders that `open` returns. An order for a client that holds more is
        smaller, and not counted again. An order with the whole model, which replaces one that was of no use, is.

        Args:
            client: one of the round's clients; any number where it only evaluates.
            holds: the digest of the model that the client holds (`Client.holds`), or None if it holds none. If left
                out, what the server itself knows of the client.
            evaluate: the client only looks at the present model; no round needs to be open, and nothing is counted.
        """
        known, held = self._held_by(client), None
        if isinstance(holds, EllipsisType):
            held = known
        elif holds:
            held = self._state.log.round_of(holds)
        if evaluate:
            return self._addressed(EVALUATION, held).pack()
        if client not in self._opened().orders:
            raise EngineError(f"Client {client} was not asked in this round.")
        if held is None and known is not None:
            self._count(client, None)
        return self._addressed(self._opened().orders[client], held).pack()

    def holding(self, clients: Collection[int]) -> None:
        """Note that these clients hold the present model, so that the next order starts from it."""
        self._state = replace(self._state, log=self._state.log.noted(clients, self._state.log.round))

    def forget(self, clients: Collection[int]) -> None:
        """Note that these clients may have lost the model that they held."""
        self._state = replace(self._state, log=self._state.log.noted(clients, None))

    def receive(self, client: int, reply: bytes) -> None:
        """Take a client's reply. Raises Refused with the reason if it cannot be used; a better one may still come."""
        opened = self._opened()
        if not isinstance(reply, bytes | bytearray | memoryview):
            raise Refused(f"The reply of client {client} is a {type(reply).__name__}, not bytes.")
        reply = bytes(reply)
        try:
            heard = opened.check(client, reply, self._state.layout, self.model, self.stages)
        except Refused as refusal:
            opened.refuse(client, reply, str(refusal))
            raise
        opened.heard[client] = heard
        opened.missing.pop(client, None)

    def further(self) -> Mapping[int, bytes]:
        """Return what clients are asked next, once their replies are in: nothing, except in private rounds."""
        return {}

    def absent(self, client: int, reason: str) -> None:
        """Note why a client will not answer in this round."""
        opened = self._opened()
        if client in opened.orders and client not in opened.heard:
            opened.missing[client] = reason

    def measured(self, client: int, sent: Model) -> None:
        """Note a model that a client sent as it is, and that somebody else takes, so that limits look at it too."""
        if self.stages.limit.is_set:
            opened, layout = self._opened(), self._state.layout
            moved = float(np.linalg.norm((sent.weights - self.model.weights).astype(np.float64)))
            opened.norms[client], opened.changes[client] = measured(layout, moved, self.model, sent)

    def refuse_outliers(self) -> dict[int, str]:
        """Refuse updates above the limits once all replies are in, as `heard` and `close` do. Return the reasons."""
        return self._opened().apply_limit(self.stages.limit)

    @property
    def factors(self) -> dict[int, float]:
        """What the updates of the open round that are too large are multiplied by, where the limit clips."""
        return self._opened().factors(self.stages.limit)

    def heard(self, clients: Collection[int] | None = None, wide: bool = False) -> dict[int, Weights]:
        """Return the weights of each accepted reply, w_k + Q(update), for a strategy that adds up by itself.

        Call it once all replies are in: a limit by the round's median refuses here. Clipped updates are clipped.

        Args:
            clients: whose; None: everybody's.
            wide: bfloat16 arrays come as float32.
        """
        self.refuse_outliers()
        opened, layout, model = self._opened(), self._state.layout, self.model
        factors = self.factors
        return {
            client: layout.join(one.decoded(layout, model, factors.get(client, 1.0)), wide=wide)
            for client, one in sorted(opened.heard.items())
            if clients is None or client in clients
        }

    @property
    def missing(self) -> dict[int, str]:
        """Who was asked in the open round and does not count so far, with the reason."""
        return self._opened().missing_clients

    def close(self, weights: Weights | None = None) -> Round:
        """End the round with the replies that came. Raises EngineError if they are too few; the round stays open.

        weights: the new model, where somebody else has made it from `heard`. The rule may still reject it, so that the
        model to continue with is the returned round's.
        """
        self.refuse_outliers()
        opened, layout = self._opened(), self._state.layout
        self._parcels.clear()
        aggregated = None if weights is None else _finite(layout, layout.split(weights, copy=True))
        after, facts = rounds.end(self.stages, self._state, opened, aggregated)
        self._begin_at(after)
        return Round(after.layout, after.trajectory.model, facts)

    def adopt(self, weights: Weights) -> None:
        """Continue with weights that somebody else has changed. Raises ConfigError if they do not fit."""
        state = self._state
        model = _finite(state.layout, state.layout.split(weights, copy=True))
        digest = digest_of(model)
        if not self.has(digest):
            trajectory = replace(state.trajectory, model=model, downlink=self.stages.downlink.init(model))
            self.return_to(replace(state, trajectory=trajectory, earlier=None, log=Log(state.log.round + 1, digest)))

    def has(self, digest: bytes) -> bool:
        """Say whether this is the digest of the present model, in float32 or in the arrays' own types."""
        layout = self._state.layout
        return digest == self._state.log.digest or (layout.narrow and digest == digest_of(layout.split(self.weights)))

    def return_to(self, earlier: ServerState) -> None:
        """Forget what came after this state, an open round included."""
        self._begin_at(earlier)

    def _begin_at(self, state: ServerState) -> None:
        """Continue from this state; no round is open."""
        self._state, self._before = state, state
        self._round = None
        self._parcels: dict[int | None, tuple[str, bytes]] = {}  # what brings those who hold a model to the present one

    def state(self) -> dict[str, Any]:
        """Return the whole state as a plain tree of arrays, numbers, bytes and text, also in the middle of a round.

        >>> import numpy as np
        >>> server = Server(np.zeros(3, dtype=np.float32))
        >>> Server.restore(server.state()).open([0]) == server.open([0])
        True
        """
        opened, base = self._round, self._state if self._round is None else self._before
        tree = {"settings": self.stages.describe(), "signed": sorted(self._secrets), **base.tree()}
        return tree if opened is None else {**tree, "open": {**self._given, **opened.tree()}}

    @staticmethod
    def restore(
        tree: Mapping[str, Any],
        stages: Stages | None = None,
        secrets: Mapping[int, bytes] | None = None,
        **objects: Any,
    ) -> Server:
        """Restore a server from `state()`, except for its secrets.

        objects: rule, quantizer, downlink or step, where it cannot be made from its name and its settings.
        """
        server = Server.__new__(Server)
        server._secrets = _checked(secrets)
        try:
            if unsigned := set(tree.get("signed", ())) - server._secrets.keys():
                raise CheckpointError(
                    f"The replies of client {min(unsigned)} were signed, and its secret is not part of the state. Pass "
                    "the secrets: restore(state, secrets={client: bytes})."
                )
            server.stages = stages or Stages.of_description(tree["settings"], objects)
            state = ServerState.of(tree)
            for one in filter(None, (state.trajectory, state.earlier)):
                server.stages.downlink.check(one.downlink, state.layout.dimension)
            server._begin_at(state)
            if (opened := tree.get("open")) is not None:
                server.open(*(opened[name] for name in ("clients", "eta", "loss", "expected")))
                for client, reply in opened["replies"].items():
                    server.receive(int(client), reply)
                server._opened().restore(opened, server._state.layout)
        except Refused as error:
            raise CheckpointError(
                f"A reply of the open round cannot be taken again. {error} Pass the same secrets."
            ) from error
        except (AdaQuantError, MemoryError):
            raise
        except Exception as error:  # a tree that is none raises almost anything
            raise CheckpointError(f"This is not the state of a server ({error!r}).") from error
        return server

    def _opened(self) -> OpenRound:
        if self._round is None:
            raise EngineError("No round is open: call open() first.")
        return self._round

    def _held_by(self, client: int) -> int | None:
        """The round of the model that a client holds, as far as is known; None if no steps lead on from it."""
        log = self._state.log
        held = log.holds.get(client)
        return held if held is not None and log.leads_from(held) else None

    def _addressed(self, order: Order, held: int | None) -> Order:
        """An order with what brings its client to the present model. held: the round of the model that it has."""
        if held not in self._parcels:
            layout = self._state.layout.to_json() if held is None else ""
            self._parcels[held] = layout, self._state.log.parcel(held, self.model)
        layout, parcel = self._parcels[held]
        return replace(order, layout=layout, parcel=parcel)

    def _count(self, client: int, held: int | None) -> None:
        """Count the bytes of a client's order."""
        opened = self._opened()
        order = self._addressed(opened.orders[client], held)
        opened.order_bytes[client] = opened.order_bytes.get(client, 0) + order.size
        opened.parcel_bytes[client] = opened.parcel_bytes.get(client, 0) + len(order.parcel)


class Orders(Mapping[int, bytes]):
    """A round's orders by client. Each is put together when it is asked for, from one copy of the model's bytes."""

    def __init__(self, pack: Mapping[int, Callable[[], bytes]]) -> None:
        self._pack = pack

    def __getitem__(self, client: int) -> bytes:
        return self._pack[client]()

    def __iter__(self) -> Iterator[int]:
        return iter(self._pack)

    def __len__(self) -> int:
        return len(self._pack)


def _numbers(clients: Sequence[int]) -> list[int]:
    """The clients of a round as plain numbers."""
    try:
        numbers = [operator.index(client) for client in clients]
    except TypeError:
        raise EngineError(f"clients = {clients!r}: clients are whole numbers from 0.") from None
    if not numbers or min(numbers) < 0:
        raise EngineError("A round needs at least one client; clients are numbered from 0.")
    return numbers


def _checked(secrets: Mapping[int, bytes] | None) -> dict[int, bytes]:
    """The clients' secrets; an empty one would let anybody sign."""
    for client, secret in (secrets or {}).items():
        if not isinstance(secret, bytes) or not secret:
            raise ConfigError(f"The secret of client {client} is {secret!r}: expected bytes, best 16 random ones.")
    return dict(secrets or {})


def _finite(layout: Layout, model: Model) -> Model:
    if not layout.is_finite(model):
        raise ConfigError("The weights have a value that is NaN, or beyond float32.")
    return model
