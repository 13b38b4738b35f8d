"""The client's line: a mod that opens the server's order, and sends a quantized update instead of the model."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from ..errors import AdaQuantError, ConfigError, ModelNeeded
from ..private.packet import kind_of
from ..protocol.arrays import Layout
from ..protocol.client import Client, ModelCache
from ..protocol.parcels import Held, digest_of
from ..protocol.uplink import ROUNDS_KEPT
from ..quantizers.streams import stream_key
from . import masked, records
from .fleet import Once
from .losses import loss_in, numbers_in
from .records import arrays_in, bytes_in, give, put, recall, remember, trained_in, without_ours

_SECAGG = "secaggplus_configs"  # Flower's record in the messages of its SecAgg+ workflow
_once = Once()


def quantize_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Quantize the reply to a train message of an `AdaQuantStrategy`, and open the model of an evaluate message.

    All other messages are left alone. Put it first in `mods`: the first is the last to touch the reply, and others want
    to see plain arrays.

    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[quantize_mod])
    >>> @app.train()
    ... def train(message: Message, context: Context) -> Message:
    ...     ...  # as without it: train, and return all of the model's arrays
    """
    if _SECAGG in message.content.config_records:
        _once("secagg", "quantize_mod does nothing with SecAgg+, whose masked weights cannot be quantized afterwards.")
    plan = without_ours(message)
    if plan is None:
        return call_next(message, context)
    number = str(context.node_config.get("partition-id", ""))
    partition = int(number) if number.isdecimal() else None
    if not plan:  # a question of the strategy, not for the app
        ours = ConfigRecord({} if partition is None else {records.PARTITION: partition})
        return Message(RecordDict({records.KEY: ours}), reply_to=message)
    order = plan.get(records.ORDER)
    if isinstance(order, bytes) and kind_of(order) >= 0:
        models, key = _models(message, plan, context)[0], _key(plan, partition)
        return masked.answer(message, context, call_next, plan, models, key)
    try:
        _, client = _models(message, plan, context, partition)
        weights = client.open(bytes_in(plan, records.ORDER), copy=False, key=_key(plan, partition))
        give(message, str(plan["arrays"]), weights)
    except (AdaQuantError, KeyError, TypeError, ValueError, IndexError) as error:
        return _unopened(message, context, call_next, error)
    evaluate = message.metadata.message_type.partition(".")[0] == MessageType.EVALUATE
    if evaluate:  # keep the model for the next round
        remember(client, context.state, with_model=True)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    if evaluate:
        put(reply, records.KEY, ConfigRecord({records.HOLDS: client.holds}))
        return reply
    try:
        (name, arrays), (loss, examples) = trained_in(reply), _measured(reply.content, plan)
        data = client.reply(arrays, loss, examples, measure_error=True)
    except ConfigError as error:
        return _plain(reply, str(error))
    if plan["with_model"] or client.keeps or records.KEY in context.state:  # what was taken back must not come back
        kept = int(plan.get("rounds_kept", ROUNDS_KEPT))  # type: ignore[arg-type]
        remember(client, context.state, bool(plan["with_model"]), kept)
    entries = {records.REPLY: data, records.PARTITION: partition, records.ERROR: client.error}
    put(reply, name, ConfigRecord({key: value for key, value in entries.items() if value is not None}))
    return reply


def _key(plan: ConfigRecord, partition: int | None) -> int | None:
    """The key by the partition: another run with the same seed meets it again, but not the node's id."""
    if partition is None or "seed" not in plan:
        return None
    return stream_key(int(plan["seed"]), int(plan["round"]), partition)  # type: ignore[arg-type]


def _models(
    message: Message, plan: ConfigRecord, context: Context, partition: int | None = None
) -> tuple[ModelCache, Client]:
    """The model that the client holds, or that the message has, and the client."""
    models = ModelCache()
    client = recall(context.state, partition or 0, models)
    if records.LAYOUT in plan:  # the arrays of Flower's own record are the model
        layout = Layout.from_json(str(plan[records.LAYOUT]))
        arrays = arrays_in(message.content.array_records[str(plan["arrays"])])
        sent = layout.split(arrays)
        models.last = Held(0, sent, digest_of(sent), layout)
    return models, client


def _unopened(message: Message, context: Context, call_next: ClientAppCallable, error: Exception) -> Message:
    """Train without an order that cannot be used, where the model is there; otherwise ask for the whole model."""
    reason = f"{records.SPEAKER} {error}"
    if not isinstance(error, ModelNeeded):
        reason += " Install the same version of adaquantfl on server and clients."
    if not message.content.array_records:
        return Message(Error(records.MOD_FAILED, reason), reply_to=message)
    reply = call_next(message, context)
    return reply if reply.has_error() else _plain(reply, reason)


def _plain(reply: Message, reason: str) -> Message:
    """The reply as it is, with a note for the server."""
    _once("plain", "quantize_mod: replies are sent as they are, not quantized. %s", reason)
    put(reply, records.KEY, ConfigRecord({records.NOTE: reason}))
    return reply


def _measured(content: RecordDict, plan: ConfigRecord) -> tuple[float, int]:
    """The training loss, 0 where none is reported, and the number of examples."""
    numbers = numbers_in(content)
    loss, examples = loss_in(numbers, plan["loss"]) or 0.0, numbers.get(str(plan["examples"]), 1)  # type: ignore[arg-type]
    # The strategy reads the loss from the metrics and ignores one below 0; the update counts all the same.
    return (0.0 if loss < 0 and not plan.get("signed") else loss), max(1, round(examples)) if examples < 2**32 else 1
