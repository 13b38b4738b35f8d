"""A client's update as NVFlare carries it: two byte strings instead of the DXO's arrays.

"layout" has the names, types and shapes of the arrays, as JSON packed by zlib. "update" is a reply of the protocol
(docs/wire-format.md): the frame of the quantized arrays, and the arrays that travel as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..codecs.accumulator import Accumulator, check_frame
from ..codecs.raw import decode_float32, encode_float32
from ..errors import FrameError
from ..protocol.arrays import MOST_LAYOUT_BYTES, Layout, Model
from ..protocol.limited_json import limited_json
from ..protocol.messages import Reply
from ..protocol.uplink import MOST_VALUE
from .tensors import to_values

NAME = "adaquantfl"  # of the algorithm, in the DXO's meta
LAYOUT, UPDATE = "layout", "update"
_MOST_LAYOUT = 2 * MOST_LAYOUT_BYTES  # with the types of tensors


def pack(layout: Layout, types: Mapping[str, str], model: Model, frame: bytes, round: int) -> dict[str, bytes]:
    """What takes the place of the arrays. types: the PyTorch types of tensors, by name."""
    buffers = encode_float32(model.buffers) if model.buffers.size else b""
    text = json.dumps([json.loads(layout.to_json()), types], separators=(",", ":"))
    reply = Reply(round, 0.0, 1, frame, buffers, model.others)
    return {LAYOUT: zlib.compress(text.encode(), 9), UPDATE: reply.pack()}


def unpack(data: Mapping[str, Any], most_elements: int) -> dict[str, Any]:
    """The arrays, each of its own type. FrameError on anything that is malformed, not finite or too large."""
    packed, update = data.get(LAYOUT), data.get(UPDATE)
    if len(data) != 2 or not isinstance(packed, bytes) or not isinstance(update, bytes):
        raise FrameError(f"Expected the bytes {LAYOUT!r} and {UPDATE!r}, got {', '.join(map(repr, data))[:200]}.")
    layout, types = _read_layout(packed)
    if layout.dimension > most_elements:
        raise FrameError(
            f"The update has {layout.dimension:,} elements; the server takes {most_elements:,} at most "
            "(most_elements of DequantizeFilter)."
        )
    arrays = layout.join(_model(Reply.unpack(update), layout))
    if not isinstance(arrays, dict):
        raise FrameError("The layout of the update has no names.")
    if layout.narrow and not all(np.isfinite(array).all() for array in arrays.values()):
        raise FrameError("The update is beyond the range of float16.")
    return to_values(arrays, types)


def _read_layout(packed: bytes) -> tuple[Layout, dict[str, str]]:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(packed, _MOST_LAYOUT)
        layout, types = limited_json(text, _MOST_LAYOUT)
    except (zlib.error, ValueError, TypeError) as error:
        raise FrameError(f"The layout of the update cannot be read: {error}.") from None
    if not inflater.eof or not isinstance(types, dict) or not all(isinstance(one, str) for one in types.values()):
        raise FrameError("The layout of the update is not complete, or has types that are not text.")
    return Layout.from_json(json.dumps(layout)), types


def _model(reply: Reply, layout: Layout) -> Model:
    """The decoded parts, of the sizes that the layout has."""
    if bool(layout.buffers) != bool(reply.buffers) or len(reply.others) != layout.other_bytes:
        raise FrameError("The arrays that travel as they are do not have the sizes of the layout.")
    total = Accumulator(layout.dimension)
    frame = check_frame(reply.frame, 1.0, total.dimension)
    if frame.largest > MOST_VALUE:
        raise FrameError(f"Its values could reach {frame.largest:g}, above {MOST_VALUE:g}; training has diverged.")
    total.add(frame)
    buffers = decode_float32(reply.buffers, layout.buffers) if layout.buffers else np.empty(0, dtype=np.float32)
    model = Model(total.result(), buffers, reply.others)
    if not layout.is_finite(model):
        raise FrameError("The update has NaN or infinite values: the client's training has diverged.")
    return model
