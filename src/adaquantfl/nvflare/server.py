"""The server's filter: it sends the model as orders, and gives the workflow the updates that clients reply."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from ..errors import AdaQuantError, ConfigError, EngineError, reason_of
from ..protocol.arrays import EXACT_NAMES, QUANTIZED, AnyArray, Model
from ..protocol.bfloat16 import widened
from ..protocol.parcels import digest_of
from ..protocol.server import Server
from ..protocol.state import ServerState
from . import message
from .message import arrives, is_ours, place


class _End:
    """The server's end of the conversation with all clients.

    Clients hold the model of `server`, which is a little behind the workflow's own. What the workflow makes of a round
    is added to both.
    """

    def __init__(self) -> None:
        self.lock = Lock()  # NVFlare serves each client from a thread of its own
        self.server: Server | None = None
        self.names: list[str] = []  # of the clients, in the order of their numbers
        self.model = Model(np.zeros(0, np.float32), np.zeros(0, np.float32), b"")  # the workflow's
        self.tensors = False  # whether its arrays are PyTorch's
        self.round: int | None = None
        self.holds: dict[str, bytes] = {}  # the digest of the model that each client holds, as its replies say
        self.asked, self.answered, self.heard = set[str](), set[str](), 0  # in this round
        self.bytes = {"up": 0, "down": 0, "float32": 0}
        self._before: ServerState | None = None

    def begin(self, round: int | None, data: dict[str, Any], clients: Sequence[str], settings: dict[str, Any]) -> None:
        """Close the last round with the model that the workflow made of it, and open the next."""
        arrays, self.tensors = message.to_arrays(data)
        if self.server is None or not self._went_on(self.server, arrays):
            # The workflow averages, and may add momentum or Adam.
            self.server = Server(arrays, min_clients=1, averages=True, **settings)
            self.holds.clear()
        self.model = self._split(self.server, arrays)
        self.names += [name for name in sorted(clients) if name not in self.names]
        self._before = self.server.current
        drawn = len(self.asked) or None  # workflows may draw some of the clients in each round, and as many in the next
        self.server.open(range(len(self.names)), expected=drawn)
        self.round, self.asked, self.answered, self.heard = round, set(), set(), 0

    def same(self, data: dict[str, Any]) -> bool:
        """Whether this is the model that the round began with."""
        assert self.server is not None
        with suppress(ConfigError):
            return digest_of(self._split(self.server, message.to_arrays(data)[0])) == digest_of(self.model)
        return False

    def _went_on(self, server: Server, arrays: dict[str, AnyArray]) -> bool:
        """Take the workflow's new model over; False if it is another one."""
        try:
            new = self._split(server, arrays)
        except ConfigError:
            return False
        layout = server.current.layout
        step = new.weights - self.model.weights
        wanted = layout.join(Model(server.model.weights + step, new.buffers, new.others), wide=True)
        if self.heard:
            try:
                server.close(wanted)
                return True
            except AdaQuantError:  # a model that is not finite: the next lines say so, or others have added to it
                pass
        assert self._before is not None
        server.return_to(self._before)
        server.adopt(wanted)
        return True

    @staticmethod
    def _split(server: Server, arrays: dict[str, AnyArray]) -> Model:
        """The workflow's model. Means of whole numbers, which it may have as floats, are rounded."""
        layout = server.current.layout
        return layout.split(layout.typed(arrays), copy=True)

    def order(self, name: str) -> dict[str, bytes | bool] | None:
        """What a client is sent; None if it came after the round began."""
        if self.server is None or name not in self.names:
            return None
        number = self.names.index(name)
        try:
            order = self.server.order(number, self.holds.get(name))
        except EngineError:
            return None
        self.asked.add(name)
        self._count("down", order)
        return {message.ORDER: order, message.TENSORS: self.tensors}

    def receive(self, name: str, reply: bytes, updates: bool) -> dict[str, Any]:
        """The arrays of a client's result: its update, or the workflow's model with the update."""
        if self.server is None or name not in self.names:
            raise EngineError("It was not asked.")
        number, server = self.names.index(name), self.server
        server.receive(number, reply)
        layout, heard = server.current.layout, server.heard([number], wide=True)[number]
        model = layout.split(heard)
        moved = model.weights - server.model.weights
        if not updates:
            moved += self.model.weights
        arrays = dict(layout.join(replace(model, weights=moved), wide=True))
        if updates:  # of what travels as it is, too
            old = dict(layout.join(self.model, copy=False))
            for exact in (one.name for one in layout.entries if one.kind != QUANTIZED and one.dtype != "bool"):
                arrays[exact] = np.asarray(arrays[exact] - widened(old[exact]))
        self.heard += 1
        self.holds[name] = server.digest
        self._count("up", reply)
        return message.to_values(layout.typed(arrays), self.tensors)

    def _count(self, way: str, data: bytes) -> None:
        self.bytes[way] += len(data)
        self.bytes["float32"] += 4 * len(self.model.weights)


_ENDS: dict[tuple[str, str], _End] = {}


class ServerFilter(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
    """Sends the model quantized, and decodes the clients' replies. Add it to the server's output and its input.

    A reply that is damaged, not finite or too large is refused with a sentence that names the client. Its result is
    then empty, which FedAvg skips. Results of clients without a `ClientFilter` pass as they are.

    Args:
        rule: chooses how coarse updates and models are: a name of `adaquantfl methods`.
        downlink: "" is the rule's own; "exact" gives clients the workflow's model bit for bit.
        exact: patterns of names of arrays that are not quantized.
        seed: of the random numbers.

    >>> ServerFilter().rule
    'auto'
    """

    def __init__(
        self, rule: str = "auto", downlink: str = "", exact: Sequence[str] = EXACT_NAMES, seed: int = 0
    ) -> None:
        super().__init__([DataKind.WEIGHTS, DataKind.WEIGHT_DIFF], [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
        Server(np.zeros(1, np.float32), rule=rule, downlink=downlink, seed=seed)  # refuses names that there are not
        # A job's configuration is made from the attributes that are named like the arguments.
        self.rule, self.downlink, self.exact, self.seed = rule, downlink, exact, seed

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Note who has answered, and whose training failed: they may not hold the model that they were sent."""
        if arrives(fl_ctx):
            end, site = _ENDS.setdefault(place(fl_ctx), _End()), _peer(fl_ctx)
            end.answered.add(site)
            if shareable.get_return_code() != ReturnCode.OK:
                end.holds.pop(site, None)
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """The order for a client, or a client's arrays; None where nothing is to be done."""
        end, site = _ENDS.setdefault(place(fl_ctx), _End()), _peer(fl_ctx)
        with end.lock:
            if not arrives(fl_ctx):
                return self._order(end, dxo, shareable, fl_ctx)
            if not is_ours(dxo):
                return None
            try:
                reply, updates = message.entry(dxo, message.REPLY), dxo.data_kind == DataKind.WEIGHT_DIFF
                return message.unpacked(dxo, end.receive(site, reply, updates))
            except Exception as error:  # an error in a filter would end the job: no client may cause one
                end.holds.pop(site, None)
                self.log_error(fl_ctx, f"ServerFilter: the update of {site} is dropped. {reason_of(error)}")
                return message.unpacked(dxo, {})

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep the model in a round without a single update: FedAvg would take the empty mean for whole weights."""
        if event_type == EventType.END_RUN and (end := _ENDS.pop(place(fl_ctx), None)) is not None:
            self.log_info(
                fl_ctx,
                f"ServerFilter: {end.bytes['up']:,} bytes up and {end.bytes['down']:,} down, in place of "
                f"{end.bytes['float32']:,} of float32 weights.",
            )
        if event_type != AppEventType.AFTER_AGGREGATION:
            return
        mean = fl_ctx.get_prop(AppConstants.AGGREGATION_RESULT)
        if isinstance(mean, FLModel) and not mean.params and mean.params_type == ParamsType.FULL:
            self.log_error(fl_ctx, "ServerFilter: no update could be used in this round; the model stays as it is.")
            mean.params_type = ParamsType.DIFF

    def _order(self, end: _End, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        if dxo.data_kind != DataKind.WEIGHTS or is_ours(dxo):
            return None
        number = shareable.get_header(AppConstants.CURRENT_ROUND)  # as the workflow counts, if it does
        number = fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if number is None else number
        try:
            same = end.server is not None and number == end.round
            if same and not end.same(dxo.data):  # workflows that pass a model from client to client
                if end.asked - end.answered:
                    raise ConfigError("It is not the one that other clients of this round train.")
                same = False
            if not same:
                settings = {name: getattr(self, name) for name in ("rule", "downlink", "exact", "seed")}
                end.begin(number, dxo.data, _clients(fl_ctx), settings)
            entries = end.order(_peer(fl_ctx))
        except AdaQuantError as error:
            self.log_warning(fl_ctx, f"ServerFilter: the model passes as it is. {error}")
            return None
        return None if entries is None else message.packed(dxo, entries)


def _clients(fl_ctx: FLContext) -> list[str]:
    """The names of all clients that are there."""
    engine = fl_ctx.get_engine()
    return [_peer(fl_ctx)] if engine is None else [client.name for client in engine.get_clients()]


def _peer(fl_ctx: FLContext) -> str:
    peer = fl_ctx.get_peer_context()
    return str(peer.get_identity_name()) if peer else "an unknown client"
