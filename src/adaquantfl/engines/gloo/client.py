"""A client process: it joins the server, answers its calls, and ends when the run ends or the server is gone."""

from __future__ import annotations

import logging
import os
import sys
import threading
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Store

from ... import checkpoint
from ...errors import EngineError, reason_of
from ...threads import set_threads
from ...training.task import Task
from ...training.trainer import Trainer
from ..calls import Call, Failure, Player, Trained
from ..own_file import settings_here
from .connection import EXCHANGE_SECONDS, Connection, first_line
from .rendezvous import JOIN_SECONDS, address_facing, join, open_store
from .secrets import Seal, client_secret
from .wire import CALL_BYTES, END, RESTORE, STATE, CallHeader, pack_answer, unpack_call

_log = logging.getLogger("adaquantfl")
_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 900.0  # without an answer from the store: its host is gone
_OWN_END_SECONDS = 2.0  # for a client that has noticed it by itself, or has heard that the run is over


def play_process(host: str, port: int, client: int) -> None:
    """Play the client that this process is, and end with the process that hosts the store, whatever it is doing then.

    That is the server, or a launcher that ends with it. It needs no connection but the one that every client has, so
    that it works across hosts.
    """
    store, over = open_store(host, port, JOIN_SECONDS), threading.Event()
    threading.Thread(target=_watch_store, args=(host, port, client, over), daemon=True).start()
    try:
        play(store, host, client)
    finally:
        over.set()


def _watch_store(host: str, port: int, client: int, over: threading.Event) -> None:
    try:
        store = open_store(host, port, JOIN_SECONDS)  # of its own: a store answers one question at a time
        store.set_timeout(timedelta(seconds=_SILENCE_SECONDS))
        while not over.wait(_POLL_SECONDS):
            store.check(["any"])
    except (EngineError, RuntimeError):
        if not over.wait(_OWN_END_SECONDS):
            print(f"adaquantfl: client {client} ends: the server's process is gone.", file=sys.stderr, flush=True)
            os._exit(1)  # also in the middle of a call


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


def _answer_calls(
    connection: Connection, values: dict[str, Any], seal: Seal | None, client: int, secret: bytes
) -> None:
    player: Player | None = None
    while True:
        header = unpack_call(connection.receive(CALL_BYTES, EXCHANGE_SECONDS))
        if header.name == END:
            return
        body = connection.receive(header.size, EXCHANGE_SECONDS)
        try:
            player = player or _player(values, secret)
            answer = _answer(player, client, header, body)
            if isinstance(answer, Trained):
                _log_round(player, client, len(body), answer)
        except Exception as error:  # the task is the user's code; whatever it raises, the server must be told
            answer = Failure(reason_of(error))
        del body
        parts = pack_answer(header.number, answer)
        for part in (*parts, seal.of(*parts)) if seal else parts:
            connection.send(part, EXCHANGE_SECONDS)


def _log_round(player: Player, client: int, received: int, trained: Trained) -> None:
    _log.info(
        f"Client {client}: round {player.clients[client].order.round + 1}, {received:,} B received, "
        f"{len(trained.reply):,} B sent, trained in {trained.train_seconds:.1f} s."
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
    return player.answer(Call(header.name, client, body))


def _player(values: dict[str, Any], secret: bytes) -> Player:
    config = settings_here(values)
    return Player(Trainer(config, Task.of(config)), secret)
