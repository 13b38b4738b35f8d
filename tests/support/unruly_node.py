"""A SuperNode whose client does wrong on purpose, for the tests: python unruly_node.py FAULT ARGUMENTS."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from adaquantfl.engines.flower import node
from adaquantfl.protocol import short
from adaquantfl.protocol.client import Client
from adaquantfl.protocol.messages import Reply
from adaquantfl.training.trainer import Trainer

answer = Client.reply


def raises(*_: Any) -> Any:
    raise RuntimeError("no data today")


def corrupts(*arguments: Any) -> bytes:
    reply = Reply.unpack(answer(*arguments))
    middle = len(reply.frame) // 2
    frame = reply.frame[:middle] + bytes([reply.frame[middle] ^ 1]) + reply.frame[middle + 1 :]
    return replace(reply, frame=frame).pack()


if __name__ == "__main__":
    short.LONGEST = 0  # frames travel whole, with a checksum of their own
    if sys.argv[1] == "corrupts":
        Client.reply = corrupts  # type: ignore[method-assign, assignment]
    else:
        assert sys.argv[1] == "raises"
        Trainer.train = raises  # type: ignore[method-assign]
    sys.exit(node.main(sys.argv[2:]))
