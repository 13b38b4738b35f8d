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

import numpy as np

import adaquantfl as aq
from adaquantfl.engines.gloo.__main__ import main
from adaquantfl.protocol.messages import Model, Plan, Reply
from adaquantfl.training.trainer import Trainer

SLOW_SECONDS = 12.0


def spoil(fault: str, reply: Reply, plan: Plan) -> Reply:
    """What the client sends, or does, instead."""
    frame = reply.frame
    if fault == "raise":
        raise RuntimeError("no room on the device")
    if fault == "slow":
        time.sleep(SLOW_SECONDS)
    if fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "corrupt":
        frame = frame[:-30] + bytes([frame[-30] ^ 1]) + frame[-29:]
    if fault == "truncated":
        frame = frame[:-9]
    if fault == "dimension":
        frame = aq.compress(np.ones(7, dtype=np.float32), s=plan.s or 1, key=0)
    if fault == "NaN scale":
        place = frame.index(struct.pack("<f", aq.decode(frame).scales[-1]))
        frame = frame[:place] + struct.pack("<f", float("nan")) + frame[place + 4 : -4]
        frame += struct.pack("<I", zlib.crc32(frame))
    if fault == "enormous":
        frame = aq.compress(np.full(aq.decode(frame).values.size, 1e6, dtype=np.float32), s=plan.s or 1, key=0)
    return replace(reply, frame=frame)


if __name__ == "__main__":
    faults = json.loads(sys.argv.pop(1)).get(sys.argv[2], {})
    honest = Trainer.train

    def train(trainer: Trainer, client: int, model: Model, plan: Plan) -> Reply:
        reply = honest(trainer, client, model, plan)
        fault = faults.get(str(plan.round + 1))
        return spoil(fault, reply, plan) if fault else reply

    Trainer.train = train  # type: ignore[method-assign]
    raise SystemExit(main())
