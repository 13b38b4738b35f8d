"""Evaluate messages: a client that holds an earlier model is sent what leads from it to the present one.

A client that has opened the model of an evaluate message holds it, so that its next train message is small. The reply
says which model it holds. Until a node has said so once, it gets the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Message

from ..errors import ConfigError
from ..protocol.downlink import digest_of
from ..protocol.server import Server
from .fleet import Fleet
from .form import Form
from .records import HOLDS, arrays_in, without_ours
from .sending import Envelope, Sent, model_in
from .traffic import bytes_of


def show(server: Server, form: Form, fleet: Fleet, messages: Sequence[Message], sent: Sent) -> None:
    """Write the present model into evaluate messages. A model that is not the server's stays as it is.

    Where clients keep no model, they are only told not to send it back.
    """
    try:
        name, record = model_in(messages)
        arrays = arrays_in(record)
        digest = digest_of(server.current.layout.split(form.once(arrays)))
    except ConfigError:
        return
    sent.envelope = Envelope(name, digest == server.current.log.digest, {"arrays": name, **form.settings})
    if server.stages.downlink.name == "model" or form.apart(arrays) or not server.has(digest):
        for message in messages:
            message.content = sent.envelope.write(message.content, None)
        return
    for message, client in zip(messages, fleet.clients(messages), strict=True):
        known = message.metadata.dst_node_id in fleet.readers
        message.content = sent.envelope.write(message.content, server.view([client], whole=not known)[client])


def seen(server: Server, fleet: Fleet, sent: Sent, replies: list[Message]) -> tuple[list[Message], int]:
    """The replies for the wrapped strategy, and their bytes as they came. Notes who holds the model now."""
    replies, lost, plain = sent.again(replies, lambda node: _whole(server, fleet.numbers[node]))
    fleet.note_second(lost, plain)
    bytes_up = bytes_of(replies)
    holders, others = set[int](), set[int]()
    for reply in replies:
        node, record = reply.metadata.src_node_id, without_ours(reply) if reply.has_content() else None
        if node not in fleet.numbers:
            continue
        if record is not None and record.get(HOLDS) == server.current.log.digest:
            holders.add(fleet.numbers[node])
            fleet.readers.add(node)
        elif reply.has_error():
            others.add(fleet.numbers[node])
            fleet.readers.discard(node)
    server.viewed(holders, lost=others)
    return replies, bytes_up


def _whole(server: Server, client: int) -> bytes:
    return server.view([client], whole=True)[client]
