"""The ClientApp: a node answers the calls of the client whose number is its partition-id.

It keeps no state but, where its process lives on, the data and the last model: what comes next may lead on from it.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .identity import write_identity

# The rest is imported where it is used: PyTorch takes seconds, and a node that only says who it is has no need of it.
if TYPE_CHECKING:
    from ...protocol.downlink import Held
    from ...protocol.messages import Model
    from ...training.trainer import Trainer
    from ..calls import Call

app = ClientApp()
resident = False  # whether this process answers the next message too (node.py)
_held: dict[int, Held] = {}  # run -> the model that it was sent last


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Which client this node plays."""
    return Message(write_identity(context.node_config, resident), reply_to=message)


@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """Carry out the calls of a message."""
    me = str(context.node_config.get("partition-id", ""))
    return Message(_answers(message.content, context.run_id, me), reply_to=message)


def _answers(content: RecordDict, run: int, me: str) -> RecordDict:
    from ...protocol.downlink import ParcelRefused, open_parcel
    from ...protocol.quorum import reason_of
    from ..calls import Failure
    from .records import read_question, write_answers, write_refusal

    config, calls, parcel = read_question(content)
    try:
        trainer = _trainer(config)
        first = trainer.federation.model
        held = open_parcel(parcel, _held.get(run), len(first.weights), len(first.buffers))
    except ParcelRefused as error:
        return write_refusal(str(error))
    except Exception as error:  # no data, for instance
        return write_answers([Failure(reason_of(error))] * len(calls))
    if resident:
        _held.clear()
        _held[run] = held
    return write_answers([_attempt(trainer, call, held.model, me) for call in calls])


def _attempt(trainer: Trainer, call: Call, model: Model, me: str) -> Any:
    from ...protocol.quorum import reason_of
    from ..calls import Failure, perform

    name, arguments = call
    if name in ("train", "loss") and str(arguments[0]) != me:
        return Failure(f"its node was asked to play client {arguments[0]}, but has partition-id={me or '(none)'}.")
    try:
        return perform(trainer, call, model)
    except Exception as error:  # a client's code is the user's; whatever it raises concerns that client
        return Failure(reason_of(error))


@lru_cache(maxsize=1)
def _trainer(config: str) -> Trainer:
    """Kept between messages where the process is."""
    import torch

    from ...runs.config import config_of
    from ...threads import set_threads
    from ...training.task import Task
    from ...training.trainer import Trainer
    from ..own_file import as_here

    torch.set_num_threads(1)  # the host's other cores belong to other clients
    set_threads(1)
    settings = as_here(config_of(tomllib.loads(config)))
    return Trainer(settings, Task.of(settings))
