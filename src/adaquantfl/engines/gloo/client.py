"""A client process: it joins the server, answers its calls, and ends when the run ends or the server is gone."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.distributed import Store

from ... import checkpoint
from ...errors import EngineError, reason_of
from ...protocol.messages import LEVELS
from ...threads import set_threads
from ...training.settings import Settings
from ...training.task import Task
from ...training.trainer import Trainer
from ..calls import SHARED, Call, Failure, Player, Trained
from ..own_file import as_here
from .connection import Connection, first_line
from .rendezvous import address_facing, join
from .secrets import Seal, client_secret
from .wire import CALL_BYTES, END, PING, RESTORE, STATE, CallHeader, pack_answer, unpack_call

_log = logging.getLogger("adaquantfl")
SILENCE_SECONDS = 900.0  # without a word from the server, which pings every minute: it is gone


def play(store: Store, server: str, client: int) -> None:
    """Take part in the run that the store announces, as client `client`, until it is over."""
    torch.set_num_threads(1)
    set_threads(1)
    secret = client_secret(client)
    try:
        joined = join(store, address_facing(server), client, secret)
    except RuntimeError as error:
        raise EngineError(f"Client {client} could not join the run: {first_line(error)}") from None
    if joined is None:
        return
    try:
        _answer_calls(*joined, client, secret)
    except RuntimeError as error:
        raise EngineError(
            f"Client {client} ends: the server has closed the connection or is gone ({first_line(error)})."
        ) from None


def _answer_calls(connection: Connection, config: Settings, seal: Seal | None, client: int, secret: bytes) -> None:
    player: Player | None = None
    while True:
        header = unpack_call(connection.receive(CALL_BYTES, SILENCE_SECONDS))
        if header.name == END:
            return
        if header.name == PING:
            continue
        body = connection.receive(header.size, SILENCE_SECONDS)
        try:
            player = player or Player(Trainer(config, Task.of(as_here(config))), secret)
            answer = _answer(player, client, header, body)
            if isinstance(answer, Trained):
                _log_round(player, client, len(body), answer)
        except Exception as error:  # the task is the user's code; whatever it raises, the server must be told
            answer = Failure(reason_of(error))
        del body
        parts = pack_answer(header.number, answer)
        for part in (*parts, seal.of(*parts)) if seal else parts:
            connection.send(part, SILENCE_SECONDS)


def _log_round(player: Player, client: int, received: int, trained: Trained) -> None:
    order = player.clients[client].order
    levels = "float32" if order.s is None else f"s = {order.s:g}"
    if order.target != LEVELS:  # the client finds s from its update
        levels = f"s chosen here by {order.target} {order.s:g}"
    _log.info(
        f"Client {client}: round {order.round + 1}, {levels}, {received:,} B received, {len(trained.reply):,} B sent, "
        f"trained in {trained.train_seconds:.1f} s."
    )


def show_log() -> None:
    """Print what this process logs: a client has nothing else to show."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)


def _answer(player: Player, client: int, header: CallHeader, body: bytes) -> Any:
    if header.name == STATE:
        return checkpoint.pack(player.state(client))
    if header.name == RESTORE:
        player.restore(client, checkpoint.unpack(body))
        return 0.0
    return player.answer(Call(header.name, -1 if header.name in SHARED else client, body, header.numbers))
