"""Private rounds over Flower: the mod's part at a client, and the further messages of a round at the server.

A client never falls back to plain weights here: what cannot be masked is an error. Its reply has nothing but its own
record, because metrics would be read by the server; the loss travels under masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import Strategy

from .. import checkpoint
from ..errors import ConfigError, EngineError, ModelNeeded, Refused, reason_of
from ..private.packet import ORDER as FIRST
from ..private.packet import kind_of
from ..private.settings import Private
from ..protocol.client import ModelCache
from . import records
from .losses import loss_in, numbers_in
from .receive import Received
from .sending import bytes_of
from .wrapped import WRAPPERS, averages, chain

if TYPE_CHECKING:
    from ..private.server import Server as PrivateServer
    from .sending import Sent

_ROUND = "adaquantfl-round"  # of a client's keys and numbers in its Context's state, until the round is over


def answer(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    plan: ConfigRecord,
    models: ModelCache,
    key: int | None,
) -> Message:
    """The mod's answer to a message of a private round.

    models: with the model that the client holds. key: of the rounding, where it is not the order's.
    """
    try:
        from ..private.client import Client  # it needs the extra

        data = records.bytes_in(plan, records.ORDER)
        saved = context.state.config_records.get(_ROUND)
        if saved is not None:
            del context.state[_ROUND]
        if kind_of(data) == FIRST:
            client = Client(0, models)
            weights = client.open(data, copy=False, key=key)
            records.give(message, str(plan["arrays"]), weights)
            trained = call_next(message, context)
            if trained.has_error():
                return trained
            loss = loss_in(numbers_in(trained.content), plan["loss"])  # type: ignore[arg-type] # a list of texts
            reply = client.reply(records.trained_in(trained)[1], loss or 0.0)
            records.remember(client.plain, context.state, bool(plan["with_model"]))
        elif saved is None:
            raise EngineError("it was asked for a later step of a round that it does not know.")
        else:
            client = Client.restore(checkpoint.unpack(records.bytes_in(saved, "round")), models)
            reply = client.answer(data)
        tree = {**client.state(), "plain": None}
        if tree["round"] is not None:
            context.state[_ROUND] = ConfigRecord({"round": checkpoint.pack(tree)})
        return Message(RecordDict({str(plan["arrays"]): ConfigRecord({records.REPLY: reply})}), reply_to=message)
    except ModelNeeded as error:
        return Message(Error(records.MOD_FAILED, f"{records.SPEAKER} {error}"), reply_to=message)
    except Exception as error:  # nothing of what the app has trained may leave then
        return Message(Error(records.MOD_FAILED, f"A private round: {reason_of(error)}"), reply_to=message)


def refuse_unmasked(strategy: Strategy, private: Private) -> None:
    """ConfigError where a strategy needs single updates, or adds noise of its own."""
    name = type(strategy).__name__
    if any(isinstance(one, WRAPPERS) for one in chain(strategy)):
        raise ConfigError(f"{name} clips single updates, and nobody sees one: use private = 'central' in its place.")
    if averages(strategy) is False:
        raise ConfigError(
            f"{name} compares the clients' models with each other, or is no mean of them, and with private = "
            f"{private.name!r} nobody sees one: wrap FedAvg, or a strategy made from it such as FedAdam."
        )


def receive(
    server: PrivateServer, sent: Sent, replies: Sequence[Message], clients: Mapping[int, int], weight: str, loss: str
) -> Received:
    """Play all steps of the round. The mean of the updates is then the only reply that the wrapped strategy sees.

    EngineError where too few clients are left.

    Args:
        server: with the open round.
        sent: the first messages.
        replies: to those.
        clients: node -> client.
        weight: the metric that is the weight.
        loss: the metric that is the loss.
    """
    received = Received()
    while True:
        received.bytes_up += bytes_of(replies)
        for reply in sorted(replies, key=lambda one: clients.get(sent.node_of(one), -1)):
            node = sent.node_of(reply)
            client = clients.get(node, -1)
            try:
                if reply.has_error():
                    received.failed[node] = records.why_failed(reply)
                    server.absent(client, received.failed[node])
                    continue
                records.without_ours(reply)
                if (found := records.update_in(reply)) is None:
                    raise Refused("it sent plain weights. In a private round every ClientApp needs the mod.")
                server.receive(client, found[1])
            except Refused as error:
                received.refused[node] = str(error)
                server.absent(client, str(error))
        if not (messages := server.further()):
            break
        asked = {node: messages[client] for node, client in clients.items() if client in messages}
        ours = {node: ConfigRecord({records.ORDER: data, "arrays": sent.name}) for node, data in asked.items()}
        replies = sent.send({node: RecordDict({records.KEY: one}) for node, one in ours.items()})
    (weights,) = server.heard(wide=True).values()
    numbers: dict[str, Any] = {weight: 1.0, **({loss: server.mean.loss} if server.mean.loss else {})}
    content = RecordDict({sent.name: records.array_record(weights), "metrics": MetricRecord(numbers)})
    received.heard = server.mean.examples
    received.take(Message(content, reply_to=next(iter(sent.messages.values()))))
    return received
