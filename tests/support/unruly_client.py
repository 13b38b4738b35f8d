"""A gloo client that does wrong on purpose, for the tests: python unruly_client.py FAULTS PORT CLIENT.

FAULTS is JSON, {client: {round: fault}} with rounds counted from 1; everything else is played as it should be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
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
    if fault == "dimension":
        reply = replace(reply, frame=aq.compress(np.ones(7, dtype=np.float32), s=s, key=0))
    return reply.pack()


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
