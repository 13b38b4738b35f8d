"""What messages weigh on the wire: the objects that Flower serializes, each once per message.

HTTP's headers, TLS, and the requests by which nodes ask for messages come on top and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import InflatableObject, get_all_nested_objects

from ..protocol.arrays import Layout

_MESSAGE_BYTES = 119  # of a message's own object, measured
_ENTRY_BYTES = 130  # of a record's place in its message, without its name, measured


class Meter:
    """Weighs messages. Arrays that many messages share are serialized once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ArrayRecord, int]] = {}  # holds the record, so that its id stays its own

    def total(self, contents: Iterable[RecordDict]) -> int:
        """The bytes of messages with these contents."""
        return sum(map(self.size, contents))

    def size(self, content: RecordDict) -> int:
        """The bytes of one message."""
        arrays = {name: one for name, one in content.items() if isinstance(one, ArrayRecord)}
        others = RecordDict({name: one for name, one in content.items() if name not in arrays})
        known = sum(self._arrays(one) + len(name) + _ENTRY_BYTES for name, one in arrays.items())
        return _MESSAGE_BYTES + _serialized(others) + known

    def _arrays(self, record: ArrayRecord) -> int:
        if id(record) not in self._known:
            self._known[id(record)] = record, _serialized(record)
        return self._known[id(record)][1]


def bytes_of(replies: Iterable[Message]) -> int:
    """The bytes of replies; errors do not count."""
    return Meter().total(reply.content for reply in replies if reply.has_content())


def float32_bytes(layout: Layout) -> int:
    """The model in float32, without any head."""
    return 4 * (layout.dimension + layout.buffers) + layout.other_bytes


def _serialized(thing: InflatableObject) -> int:
    return sum(len(part.deflate()) for part in get_all_nested_objects(thing).values())
