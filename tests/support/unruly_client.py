"""A gloo client that does wrong on purpose, for the tests: python unruly_client.py FAULTS PORT CLIENT.

FAULTS is JSON, {client: {round: fault}} with rounds counted from 1; everything else is played as it should be.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl.codecs import coding
from adaquantfl.codecs import frame as frames
from adaquantfl.engines.gloo.__main__ import main
from adaquantfl.protocol.messages import Reply

WAIT = "wait for "  # a fault: answer only when the file that follows is there


def spoil(fault: str, data: bytes, s: int) -> bytes:
    """What the client sends, or does, instead of its reply."""
    if fault == "raise":
        raise RuntimeError("no room on the device")
    if fault.startswith(WAIT):
        while not Path(fault.removeprefix(WAIT)).exists():
            time.sleep(0.05)
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "damaged reply":
        return data[:-1]
    reply = Reply.unpack(data)
    frame = reply.frame
    if fault == "corrupt":
        frame = frame[:-30] + bytes([frame[-30] ^ 1]) + frame[-29:]
    if fault == "truncated":
        frame = frame[:-9]
    if fault == "dimension":
        frame = aq.compress(np.ones(7, dtype=np.float32), s=s, key=0)
    if fault == "NaN scale":
        place = frame.index(struct.pack("<f", aq.decode(frame).scales[-1]))
        frame = frame[:place] + struct.pack("<f", float("nan")) + frame[place + 4 : -4]
        frame += struct.pack("<I", zlib.crc32(frame))
    if fault == "enormous":
        segments = aq.decode(frame).segments
        values = np.full(aq.decode(frame).values.size, 1e6, dtype=np.float32)
        frame = aq.compress(values, s=s, key=0, segments=segments)
    return replace(reply, frame=frame).pack()


if __name__ == "__main__":
    coding.left_out = frames.left_out = lambda known: None  # frames travel whole, so that they can be spoiled
    faults = json.loads(sys.argv.pop(1)).get(sys.argv[2], {})
    honest = aq.Client.reply

    def reply(client: aq.Client, *arguments: Any) -> bytes:
        data = honest(client, *arguments)
        fault = faults.get(str(client.order.round + 1))
        return spoil(fault, data, int(client.order.s or 1)) if fault else data

    aq.Client.reply = reply  # type: ignore[method-assign]
    raise SystemExit(main())
