"""The client's line: a mod that sends the change of the model as a quantized update instead of the model."""

from __future__ import annotations

import logging

from flwr.app import Context, Error, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode

from ..errors import AdaQuantError
from .plan import Plan
from .update import Model, pack

_log = logging.getLogger("flwr")


def quantize_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Quantize the reply to a train message of an `AdaQuantStrategy`; leave every other message alone.

    Put it first in `mods`: the first is the last to touch the reply, and others want to see plain arrays.

    An update that cannot be quantized (NaN, infinite) becomes an error reply that says so; the round goes on without.

    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[quantize_mod])
    >>> @app.train()
    ... def train(message: Message, context: Context) -> Message:
    ...     ...  # as without it: train, and return all of the model's arrays
    """
    if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    try:
        plan = Plan.read(message)
    except (AdaQuantError, TypeError, ValueError) as error:
        return _failed(message, str(error))
    records = list(message.content.array_records.values())
    if plan is None or len(records) != 1:
        return call_next(message, context)

    model = Model(records[0])
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    answers = reply.content.array_records
    if len(answers) != 1:
        _log.warning("quantize_mod: the reply has %d ArrayRecords and goes as it is; it takes one.", len(answers))
        return reply
    (name, record), client = next(iter(answers.items())), _client(context)
    try:
        packed = pack(record, model, plan, client)
    except AdaQuantError as error:
        return _failed(message, str(error))
    if packed is not None:
        reply.content[name] = packed
    return reply


def _client(context: Context) -> int:
    """The partition, which a run with the same seed meets again; else the node, whose id is random."""
    partition = str(context.node_config.get("partition-id", ""))
    return int(partition) if partition.isdecimal() else context.node_id


def _failed(message: Message, reason: str) -> Message:
    _log.error("quantize_mod: %s", reason)
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"quantize_mod: {reason}"), reply_to=message)
