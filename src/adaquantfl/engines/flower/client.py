"""The ClientApp: a node answers the calls of the client whose number is its partition-id. It keeps no state."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .identity import write_identity

# The rest is imported where it is used: PyTorch takes seconds, and a node that only says who it is has no need of it.
if TYPE_CHECKING:
    from ...federated.client import Trainer
    from ...federated.messages import Model
    from ..calls import Call

app = ClientApp()


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which client this node plays."""
    return Message(write_identity(context.node_config), reply_to=message)


@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """Carry out the calls of a message."""
    from .records import read_question, write_answers

    config, calls, model = read_question(message.content)
    me = str(context.node_config.get("partition-id", ""))
    return Message(write_answers([_attempt(config, call, model, me) for call in calls]), reply_to=message)


def _attempt(config: str, call: Call, model: Model, me: str) -> Any:
    from ...federated.quorum import reason_of
    from ..calls import Failure, perform

    name, arguments = call
    if name != "correct" and str(arguments[0]) != me:
        return Failure(f"its node was asked to play client {arguments[0]}, but has partition-id={me or '(none)'}.")
    try:
        return perform(_trainer(config), call, model)
    except Exception as error:  # a client's code is the user's; whatever it raises concerns that client
        return Failure(reason_of(error))


@lru_cache(maxsize=1)
def _trainer(config: str) -> Trainer:
    """Kept between messages where the process is: one of Ray's actors, or a worker (see worker.py)."""
    import torch

    from ...config import Config
    from ...federated.client import Trainer
    from ...tasks.task import Task
    from ...threads import set_threads

    torch.set_num_threads(1)  # the host's other cores belong to other clients
    set_threads(1)
    settings = Config(**tomllib.loads(config))
    return Trainer(settings, Task.of(settings))
