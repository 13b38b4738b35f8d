"""A SuperNode whose client does wrong on purpose, for the tests: python unruly_node.py FAULT ARGUMENTS."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from adaquantfl.engines.flower import node
from adaquantfl.protocol.messages import Model, Plan, Reply
from adaquantfl.training.trainer import Trainer

train = Trainer.train


def raises(self: Trainer, client: int, model: Model, plan: Plan) -> Reply:
    raise RuntimeError("no data today")


def corrupts(self: Trainer, client: int, model: Model, plan: Plan) -> Reply:
    reply = train(self, client, model, plan)
    middle = len(reply.frame) // 2
    return replace(reply, frame=reply.frame[:middle] + bytes([reply.frame[middle] ^ 1]) + reply.frame[middle + 1 :])


def dawdles(self: Trainer, client: int, model: Model, plan: Plan) -> Reply:
    time.sleep(3600)
    return train(self, client, model, plan)


if __name__ == "__main__":
    Trainer.train = {"raises": raises, "corrupts": corrupts, "dawdles": dawdles}[sys.argv[1]]  # type: ignore[method-assign]
    sys.exit(node.main(sys.argv[2:]))
