"""The ClientApp: a node answers the calls of the client whose number is its partition-id.

It keeps no state except the data and the last model, where its process stays alive: the next order may start from that
model. What error feedback leaves out is in Flower's Context, which any process that plays the client is given.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .nodes import write_identity

# The rest is imported where it is used: PyTorch takes seconds, and a node that only says who it is does not need it.
if TYPE_CHECKING:
    from ..calls import Call, Player

app = ClientApp()
resident = False  # whether this process answers the next message too (node.py)


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which client this node plays."""
    return Message(write_identity(context.node_config, resident), reply_to=message)


@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """Carry out the calls of a message."""
    from ...errors import reason_of
    from ..calls import Failure
    from .records import read_question, write_answers

    config, calls = read_question(message.content)
    try:
        player = player_for(config)
        answers = [_attempt(player, call, context) for call in calls]
    except Exception as error:  # no data, for instance
        answers = [Failure(reason_of(error))] * len(calls)
    return Message(write_answers(answers), reply_to=message)


def _attempt(player: Player, call: Call, context: Context) -> Any:
    from ...flower.records import KEY, recall, remember
    from ...protocol.messages import Order
    from ..calls import SHARED, Failure

    me = str(context.node_config.get("partition-id", ""))
    if call.name not in SHARED and str(call.client) != me:
        return Failure(f"its node was asked to play client {call.client}, but has partition-id={me or '(none)'}.")
    if call.name != "train" or not (Order.unpack(call.order).feedback or KEY in context.state):
        return player.answer(call)
    client = player.clients[call.client] = recall(context.state, call.client, player.models)
    answer = player.answer(call)
    remember(client, context.state, with_model=False)
    return answer


@lru_cache(maxsize=1)
def player_for(config: str) -> Player:
    """Kept between messages where the process is."""
    import torch

    from ...runs.config import config_of
    from ...threads import set_threads
    from ...training.task import Task
    from ...training.trainer import Trainer
    from ..calls import Player
    from ..own_file import as_here, methods_here

    torch.set_num_threads(1)  # the host's other cores belong to other clients
    set_threads(1)
    settings = as_here(config_of(methods_here(tomllib.loads(config))))
    return Player(Trainer(settings, Task.of(settings)))
