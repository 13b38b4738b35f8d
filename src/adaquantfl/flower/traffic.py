"""What messages weigh on the wire: the objects that Flower serializes, each once per message.

HTTP's headers, TLS, and the requests by which nodes ask for messages come on top and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message

from ..protocol.arrays import Layout

_MESSAGE_BYTES = 119  # of a message's own object, measured


def bytes_of(messages: Iterable[Message]) -> int:
    """The bytes of messages; errors do not count. Records that many of them share are serialized once."""
    known: dict[int, int] = {}
    contents = [message.content for message in messages if message.has_content()]
    for content in contents:
        for record in content.values():
            if id(record) not in known:
                known[id(record)] = _serialized(record)
    own = sum(_MESSAGE_BYTES + len(content.deflate()) for content in contents)
    return own + sum(known[id(record)] for content in contents for record in content.values())


def float32_bytes(layout: Layout) -> int:
    """The model in float32, without any head."""
    return 4 * (layout.dimension + layout.buffers) + layout.other_bytes


def _serialized(part: Any) -> int:
    return len(part.deflate()) + sum(map(_serialized, (part.children or {}).values()))
