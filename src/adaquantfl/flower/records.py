"""How orders, replies and a client's state travel in Flower's records: bytes in ConfigRecords, nothing that runs code.

Flower sends a message as a tree of objects, one HTTP request for each at every hop. An Array would be three of them, so
we use ConfigRecords. The part of an order that leads to the model (the parcel) is a record of its own. So Flower stores
it once for all nodes that are sent the same one.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from .. import checkpoint
from ..errors import AdaQuantError, ConfigError
from ..protocol.arrays import AnyArray, Weights
from ..protocol.bfloat16 import NAME, name_of
from ..protocol.client import Client, ModelCache
from ..protocol.feedback import ROUNDS_KEPT
from ..protocol.messages import Order

KEY = "adaquantfl"  # of our record in a message and in a Context's state
ORDER, PARCEL, REPLY, NOTE, HOLDS, _CLIENT = "order", "parcel", "reply", "note", "holds", "client"  # entries
ERROR = "error"  # of a reply's quantizer, as the client measured it
UNMEASURED = "unmeasured"  # why the client did not measure what noise does to its loss
SPEAKER = "quantize_mod:"  # how the mod's errors begin
SAME_VERSION = "Install the same version of adaquantfl"  # in those of a client that cannot read the order


def split_order(order: bytes) -> tuple[bytes, bytes]:
    """An order in two parts, which make it up again: what is this client's own, and the parcel."""
    cut = len(order) - len(Order.unpack(order).parcel)
    return order[:cut], order[cut:]


def bytes_in(record: ConfigRecord, key: str) -> bytes:
    """An entry that must be bytes; TypeError otherwise: another host may send anything."""
    data = record.get(key)
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes under {key!r}, got {type(data).__name__}")
    return data


def arrays_in(record: Mapping[str, Array]) -> dict[str, AnyArray]:
    """The values of a record's arrays. ConfigError where one of them was not serialized by NumPy, or is damaged."""
    try:
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


def size_of(content: RecordDict) -> int:
    """The bytes of all records, as Flower counts them."""
    total = 0
    for record in content.values():
        try:
            total += record.count_bytes()
        except (ValueError, IndexError):  # it cannot count a ConfigRecord with an empty text or list
            total += len(record.deflate())
    return total


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
    except (KeyError, TypeError, AdaQuantError):
        return Client(number, models)
