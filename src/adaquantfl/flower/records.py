"""How orders, replies and a client's state travel in Flower's records: bytes in ConfigRecords, nothing that runs code.

Our record in a message has the order. Where the order leads to the model, the message has no arrays. Where the record
has the model's layout, Flower's own record of the arrays is the model, and the order only names it. The record of a
client's arrays is replaced by one with its reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from .. import checkpoint
from ..errors import AdaQuantError, ConfigError, Refused
from ..protocol.arrays import AnyArray, Weights
from ..protocol.bfloat16 import NAME, name_of
from ..protocol.client import Client, ModelCache
from ..protocol.uplink import ROUNDS_KEPT

KEY = "adaquantfl"  # of our record in a message and in a Context's state
ORDER, LAYOUT, REPLY, NOTE, HOLDS, _CLIENT = "order", "layout", "reply", "note", "holds", "client"  # entries
PARTITION = "partition"  # of a client's data: from 0, the same in every run
ERROR = "error"  # of a reply's quantizer, as the client measured it
SPEAKER = "quantize_mod:"  # how the mod's errors begin
MOD_FAILED = 6  # Flower's code for an error of a mod
_MOD_ORDER = re.compile(r"\w+ expects exactly one (Array|Config)Record")  # what Flower's own mods say of our records
_MOD_ORDER_ADVICE = "Put quantize_mod first in the client's mods: mods=[quantize_mod, ...]."


def needs_model(reply: Message) -> bool:
    """Whether a client asks for the whole model: it does not hold the one that its order starts from."""
    return reply.has_error() and str(reply.error.reason).startswith(SPEAKER)


def why_failed(reply: Message) -> str:
    """What an error says, and what to do where another mod comes before ours."""
    reason = str(reply.error.reason)
    return f"{reason} {_MOD_ORDER_ADVICE}" if _MOD_ORDER.match(reason) else reason


def update_in(reply: Message) -> tuple[str, bytes] | None:
    """The record with the client's reply, and the reply; None where it has plain arrays. Refused where it has both."""
    names = [name for name, record in reply.content.config_records.items() if REPLY in record]
    if not names:
        return None
    if len(names) > 1 or reply.content.array_records:
        raise Refused("its message was refused. It has more than one update, or arrays next to it.")
    return names[0], bytes_in(reply.content.config_records[names[0]], REPLY)


def bytes_in(record: ConfigRecord, key: str) -> bytes:
    """An entry that must be bytes; Refused otherwise: another host may send anything."""
    data = record.get(key)
    if not isinstance(data, bytes):
        raise Refused(f"expected bytes under {key!r}, got {type(data).__name__}")
    return data


def arrays_in(record: Mapping[str, Array]) -> dict[str, AnyArray]:
    """The values of a record's arrays. ConfigError where one of them was not serialized by NumPy, or is damaged."""
    try:
        for array in record.values():
            checkpoint.check_array(BytesIO(array.data), len(array.data))
        return {name: array.numpy() for name, array in record.items()}
    except Exception as error:  # np.load raises almost anything
        raise ConfigError(f"The arrays cannot be read ({type(error).__name__}: {error}).") from error


def array_record(weights: Weights) -> ArrayRecord:
    """Named arrays as Flower carries them."""
    assert isinstance(weights, Mapping)
    return ArrayRecord({name: _array(array) for name, array in weights.items()})


def _array(values: AnyArray) -> Array:
    made = Array(values)
    if name_of(values.dtype) == NAME:  # as it came, whether the package with the type is installed here or not
        return Array(NAME, made.shape, made.stype, made.data)
    return made


def trained_in(reply: Message) -> tuple[str, dict[str, AnyArray]]:
    """The arrays of a reply, and the name of their record. ConfigError where there is not just one."""
    records = list(reply.content.array_records.items())
    if len(records) != 1:
        raise ConfigError(f"It has {len(records)} ArrayRecords; expected one.")
    return records[0][0], arrays_in(records[0][1])


def give(message: Message, name: str, weights: Weights) -> None:
    """Put the model into a message whose order leads to it: first, where a strategy puts it."""
    if name not in message.content:
        message.content = RecordDict({name: array_record(weights), **message.content})


def put(message: Message, name: str, record: ArrayRecord | ConfigRecord) -> None:
    """Replace a record by another of any kind. A new RecordDict, since messages may share one."""
    message.content = RecordDict({**message.content, name: record})


def without_ours(message: Message) -> ConfigRecord | None:
    """Take our record out of a message; None where it has none."""
    record = message.content.config_records.get(KEY)
    if record is not None:
        message.content = RecordDict({name: entry for name, entry in message.content.items() if name != KEY})
    return record


def remember(client: Client, state: RecordDict, with_model: bool, rounds_kept: int = ROUNDS_KEPT) -> None:
    """Put what a client has to remember into its Context's state, which Flower keeps from message to message.

    rounds_kept: of how many rounds the client keeps what it had left out before. One is enough where the rule undoes no
    rounds: it serves a message that comes twice.
    """
    tree = client.state() if with_model else {**client.state(), "held": None}
    tree["remainder"] = {**tree["remainder"], "before": tree["remainder"]["before"][-rounds_kept:]}
    state[KEY] = ConfigRecord({_CLIENT: checkpoint.pack(tree)})


def recall(state: RecordDict, number: int, models: ModelCache) -> Client:
    """The client of a Context; a new one where it has no state, or one that cannot be read."""
    try:
        return Client.restore(checkpoint.unpack(bytes_in(state.config_records[KEY], _CLIENT)), models)
    except (KeyError, AdaQuantError):
        return Client(number, models)
