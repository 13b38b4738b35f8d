"""A round's replies: each checked when it comes, all added up in client order when the round closes (eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ..codecs.accumulator import Accumulator, Checked, check_frame
from ..codecs.frame import read_frame
from ..errors import FrameError, Refused
from ..rules import Plan
from ..theory import MAX_LEVELS
from . import trees, uplink
from .arrays import QUANTIZED, Layout, Model
from .cohort import Shares
from .limits import Changes, NormLimit, far_off, measured
from .messages import SIGNATURE_SIZE, Order, Reply, signed
from .stages import Stages
from .updates import Parts, Update, Updates

_BY_CLIENT = ("missing", "norms", "changes", "order_bytes", "parcel_bytes")  # what is noted of each client


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply that can be used. Until the round closes it is kept as its bytes, because there may be many.

    Attributes:
        data: as it came.
        signed: whether a signature is behind it.
        order: that it answers.
        largest: what no element of its frame, and of its buffers, can exceed in size.
        loss: the mean loss that the client saw in training, as it says.
        examples: that the client has, as it says.
        s: the levels of its frame; None is float32.
        payload_bytes: the frames without their headers and checksums, and what travels as it is.
    """

    data: bytes
    signed: bool
    order: Order
    largest: tuple[float, float]
    loss: float
    examples: int
    s: int | None
    payload_bytes: int

    def parts(self, layout: Layout) -> Parts:
        """The parts of the reply, read again."""
        reply = Reply.unpack(self.data[:-SIGNATURE_SIZE] if self.signed else self.data)
        frame = read_frame(reply.frame, layout.dimension, self.order.known(layout.lengths))
        buffers = read_frame(reply.buffers, layout.buffers) if layout.buffers else None
        exact = None if buffers is None else Checked(buffers, self.largest[1], 1.0)
        return Parts(Checked(frame, self.largest[0], 1.0), exact, reply.others)

    def decoded(self, layout: Layout, model: Model, factor: float = 1.0) -> Model:
        """The client's model as the server knows it. factor: below 1 where the update is clipped."""
        parts, total = self.parts(layout), Accumulator(len(model.weights))
        total.add(parts.frame)
        update = total.take()
        sent = Model(np.add(model.weights, update, out=update), parts.buffer_values(model), parts.others)
        return sent if factor == 1.0 else sent.towards(model, factor)


@dataclass
class OpenRound:
    """A round between its orders and its end.

    Attributes:
        eta: the learning rate.
        plan: the rule's.
        caution: how many times the plan's levels are used, after a round that was rolled back.
        shares: None where the replies say how much each client counts.
        orders: what each client was asked.
        digest: of the model that is trained.
        secrets: of the clients that sign.
        order_bytes: of each client's order as it was sent.
        parcel_bytes: of the part of it that leads to the model.
        norms: of every usable update, including those over the limit, where there is a limit.
        changes: likewise, of each array that is not quantized.
    """

    eta: float
    plan: Plan
    caution: float
    shares: Shares | None
    orders: Mapping[int, Order]
    digest: bytes
    secrets: Mapping[int, bytes] = field(default_factory=dict)
    order_bytes: dict[int, int] = field(default_factory=dict)
    parcel_bytes: dict[int, int] = field(default_factory=dict)
    heard: dict[int, Heard] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    changes: dict[int, Changes] = field(default_factory=dict)
    refused_bytes: int = 0
    diverged: int = 0

    def tree(self) -> dict[str, Any]:
        """What was heard and counted so far, as a plain tree."""
        return {
            "replies": {str(client): one.data for client, one in self.heard.items()},
            **{name: {str(client): value for client, value in getattr(self, name).items()} for name in _BY_CLIENT},
            "refused_bytes": self.refused_bytes,
            "diverged": self.diverged,
        }

    def restore(self, tree: Mapping[str, Any], layout: Layout) -> None:
        """Take over what `tree` counted, once the replies were received again."""
        large = partial(trees.whole_number, most=2**63)
        read: tuple[Callable[[Any], Any], ...] = (str, trees.number, trees.numbers, large, large)
        for name, value_of in zip(_BY_CLIENT, read, strict=True):
            now = getattr(self, name) if name in ("norms", "changes") else {}  # there may have been no limit before
            setattr(self, name, {**now, **{int(client): value_of(value) for client, value in tree[name].items()}})
        names = {entry.name for entry in layout.entries if entry.kind != QUANTIZED and entry.size}
        if any(changes.keys() != names for changes in self.changes.values()):
            raise ValueError("a client's changes are those of other arrays")
        if not self.order_bytes.keys() == self.parcel_bytes.keys() == self.orders.keys():
            raise ValueError("the bytes of an order are not known")
        self.refused_bytes, self.diverged = large(tree["refused_bytes"]), large(tree["diverged"])

    @property
    def planned_levels(self) -> float | None:
        """s where it is the same for all clients; None where it is not, or the round is float32."""
        s = self.plan.levels
        if s is None or self.plan.clients_differ:
            return None
        assert not isinstance(s, Mapping)
        return s if self.caution == 1 else min(s * self.caution, float(MAX_LEVELS))

    @property
    def told_examples(self) -> dict[int, int]:
        """How many examples each client says it has, of those whose replies count."""
        return {client: one.examples for client, one in self.heard.items()}

    @property
    def missing_clients(self) -> dict[int, str]:
        """Everybody who was asked and does not count, with the reason."""
        return {client: self.missing.get(client, "no answer.") for client in self.orders if client not in self.heard}

    def not_finite(self, layout: Layout) -> str:
        """What to say of a new model that is not finite, with who sent the largest updates."""
        norms = {client: one.parts(layout).frame.norm for client, one in self.heard.items()}
        largest = sorted(norms, key=lambda client: -norms[client])[:3]
        names = ", ".join(f"client {client} (norm {norms[client]:g})" for client in largest)
        return (
            f"the new model is not finite, so that it is not taken. The largest updates are those of {names}. "
            "Set max_update_norm, or lower the learning rate."
        )

    def check(self, client: int, data: bytes, layout: Layout, model: Model, stages: Stages) -> Heard:
        """A reply, looked at from end to end before anything of it is used. Refused with the reason otherwise.

        model: the round's; an update's norm is that of all its float32 parts.
        """
        limit = stages.limit
        if client not in self.orders:
            raise Refused(f"Client {client} was not asked in this round.")
        if client in self.heard:
            raise Refused(f"Client {client} has answered in this round already.")
        order, secret = self.orders[client], self.secrets.get(client)
        try:
            reply = Reply.unpack(data if secret is None else signed(data, secret))
            self._check_said(reply, order, stages)
            weight = 1.0 if self.shares is None else self.shares.weights[client]
            frame = uplink.check(reply.frame, weight, order, layout)
            parts = Parts(frame, _exact_parts(reply, weight, layout), reply.others)
            if limit.is_set:
                after = Model(model.weights, parts.buffer_values(model), reply.others)
                norm, changes = measured(layout, frame.decoded_norm, model, after)
                if reasons := limit.refused({0: norm}, median=math.inf):
                    raise FrameError(reasons[0])
                self.norms[client], self.changes[client] = norm, changes
        except FrameError as error:
            reason = str(error)
            words = reason if reason.startswith("its ") else f"the reply of client {client} was refused. {reason}"
            raise Refused(words) from error
        exact = [] if parts.buffers is None else [parts.buffers]
        payload = sum(len(one.frame.body) for one in (frame, *exact)) + len(reply.others)
        largest = frame.largest, sum(one.largest for one in exact)
        told = reply.loss, reply.examples, frame.s
        return Heard(data, secret is not None, order, largest, *told, payload)

    def _check_said(self, reply: Reply, order: Order, stages: Stages) -> None:
        """FrameError where a reply answers something else, or says what cannot be."""
        if reply.round != order.round:
            raise FrameError(f"It answers round {reply.round}, but this is round {order.round}.")
        if reply.order != order.token(self.digest):
            raise FrameError("It answers an order that another client was sent, or another run, or another model.")
        if reply.diverged:
            self.diverged += 1
            raise FrameError("Its training has diverged: lower the learning rate, or take more levels.")
        if not 1 <= reply.examples < 2**32:
            raise FrameError(f"It says it has {reply.examples:,} examples; expected 1 to 2^32 - 1.")
        if reply.loss < 0 and not stages.negative_loss:
            raise FrameError(f"Its loss is {reply.loss:g}; {stages.rule.name or 'the rule'} takes losses from 0.")

    def refuse(self, client: int, data: bytes, reason: str) -> None:
        """Note a reply that was refused: it was sent all the same."""
        self.refused_bytes += len(data)
        if client in self.orders and client not in self.heard:
            self.missing[client] = reason

    def apply_limit(self, limit: NormLimit) -> dict[int, str]:
        """Refuse what is too large compared with the round's median, once every norm is known. Return the reasons."""
        reasons = {**far_off(self.changes), **limit.refused(self.norms, self._median)}
        for client, reason in reasons.items():
            if client in self.heard:
                self.refused_bytes += len(self.heard.pop(client).data)
                self.missing[client] = reason
        return reasons

    def factors(self, limit: NormLimit) -> dict[int, float]:
        """What the updates that are too large are multiplied by, where the limit clips."""
        return limit.factors(self.norms, self._median)

    @property
    def _median(self) -> float:
        return median(self.norms.values()) if self.norms else 0.0

    def updates(self, shares: Shares, layout: Layout, model: Model, limit: NormLimit) -> Updates:
        """The updates that count, in client order, whatever the order of arrival. model: the round's."""
        factors = self.factors(limit)
        each = tuple(
            Update(client, shares.weights[client], factors.get(client, 1.0), partial(one.parts, layout))
            for client, one in sorted(self.heard.items())
        )
        scaled = not (shares.complete and not self.missing_clients)
        return Updates(each, layout, model, shares.total, scaled, self.plan.max_error or 0.0)


def _exact_parts(reply: Reply, weight: float, layout: Layout) -> Checked | None:
    """The parts that are not quantized: float32 buffers, which are returned, and arrays as they are."""
    if bool(layout.buffers) != bool(reply.buffers):
        raise FrameError("It has buffers, but the model has none, or the other way round.")
    if len(reply.others) != layout.other_bytes:
        raise FrameError(
            f"Its arrays that travel as they are have {len(reply.others):,} bytes, expected {layout.other_bytes:,}."
        )
    nothing = np.empty(0, np.float32)
    if not layout.is_finite(Model(nothing, nothing, reply.others)):
        raise FrameError("An array that is not quantized has a value that is NaN or infinite.")
    if not layout.buffers:
        return None
    buffers = check_frame(reply.buffers, weight, layout.buffers)
    if buffers.s is not None:
        raise FrameError("Its buffers are quantized; they travel in float32.")
    return buffers
