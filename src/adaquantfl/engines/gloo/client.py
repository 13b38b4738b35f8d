"""A client's life: find the server, answer its calls, and end when it ends or is gone."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed import Store

from ... import __version__
from ...errors import EngineError
from ...protocol.downlink import Held, ParcelRefused, open_parcel
from ...protocol.messages import Model
from ...protocol.quorum import reason_of
from ...runs.config import Config, config_of
from ...threads import set_threads
from ...training.task import Task
from ...training.trainer import Trainer
from ..calls import Failure, perform
from ..own_file import as_here
from .messages import CALL_BYTES, END, PING, Follows, Refusal, decode_call, encode_answer
from .pair import CLIENT, Pair, address_facing, first_line

RUN = "run"  # the store's key for what is played
PING_SECONDS = 60.0  # the server says at least so often that it is there ...
SILENCE_SECONDS = 900.0  # ... and is given up after so long
JOIN_SECONDS = 300.0  # that server and clients may take to find each other
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Keys:
    """What a server and its clients write into the store while they find each other.

    Each server has a name of its own: where a launcher starts everything anew, the store is still that of the former.
    """

    server: str

    @property
    def arrivals(self) -> str:
        """How many clients have come."""
        return f"{self.server}/arrivals"

    def arrival(self, number: int) -> str:
        """Who came as number 1, 2, ... and from where."""
        return f"{self.server}/arrival-{number}"

    def welcome(self, number: int) -> str:
        """That the server has seen it."""
        return f"{self.server}/welcome-{number}"

    def pair(self, number: int) -> str:
        """What gloo writes to connect the two."""
        return f"{self.server}/pair-{number}"


def announcement(server: str, config: Config) -> str:
    """What the server writes under RUN for the clients to read."""
    return json.dumps({"version": __version__, "server": server, "config": config.to_dict()})


def refusal(reason: str | None = None) -> str:
    """The same where there is nothing left to do, or a reason why there will be no run."""
    return json.dumps({"version": __version__, "stop": reason})


def play(store: Store, server: str, client: int) -> None:
    """Take part in the run that the store announces, as client `client`, until it is over."""
    torch.set_num_threads(1)
    set_threads(1)
    try:
        joined = _join(store, address_facing(server), client)
    except RuntimeError as error:
        raise EngineError(f"Client {client} could not join the run: {first_line(error)}") from None
    if joined is None:
        return
    try:
        _answer_calls(*joined, client)
    except RuntimeError as error:
        raise EngineError(
            f"Client {client} ends: the server has closed the connection or is gone ({first_line(error)})."
        ) from None


def _join(store: Store, address: str, client: int) -> tuple[Pair, Config] | None:
    """The connection to the server, and what is played; None if there is nothing to play."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        announced = store.get(RUN)
        run = _read(announced, client)
        if run is None:
            return None
        keys, config = run
        number = store.add(keys.arrivals, 1)
        store.set(keys.arrival(number), json.dumps([client, address]))
        while store.get(RUN) == announced:  # else another server has taken the place of that one
            if store.check([keys.welcome(number)]):
                return Pair(store, keys.pair(number), CLIENT, address), config
            if time.monotonic() > deadline:
                raise EngineError(f"Client {client} was not let in within {JOIN_SECONDS:g} s: is the server there?")
            time.sleep(_LOOK_SECONDS)


def _read(announced: bytes, client: int) -> tuple[Keys, Config] | None:
    run: dict[str, Any] = json.loads(announced)
    if run["version"] != __version__:
        raise EngineError(
            f"The server has adaquantfl {run['version']}, client {client} has {__version__}: install the same version."
        )
    if run.get("stop"):
        raise EngineError(f"Client {client} has nothing to do: {run['stop']}")
    return (Keys(run["server"]), config_of(run["config"])) if "config" in run else None


def _answer_calls(pair: Pair, config: Config, client: int) -> None:
    trainer: Trainer | None = None
    held: Held | None = None
    while True:
        header = decode_call(pair.receive(CALL_BYTES, SILENCE_SECONDS), client)
        if header.call[0] == END:
            return
        if header.call[0] == PING:
            continue
        arrived = _receive(pair, header.follows)
        try:
            held = _follow(arrived, header.follows.round, held)
            trainer = trainer or Trainer(config, Task.of(as_here(config)))
            answer = perform(trainer, header.call, held.model)
        except ParcelRefused as error:
            answer = Refusal(str(error))
        except Exception as error:  # a client's code is the user's; whatever it raises, the server must hear of it
            answer = Failure(reason_of(error))
        for part in encode_answer(header.number, header.call, answer):
            if part:
                pair.send(part, SILENCE_SECONDS)


def _receive(pair: Pair, follows: Follows) -> Model | bytes | None:
    """The model, or a parcel that leads to it, or nothing."""
    if follows.parcel:
        return pair.receive(follows.parcel, SILENCE_SECONDS)
    if not follows.weights:
        return None
    return Model(*(pair.receive_floats(size, SILENCE_SECONDS) for size in (follows.weights, follows.buffers)))


def _follow(arrived: Model | bytes | None, round: int, held: Held | None) -> Held:
    """The model that a call is about: of this round, where rounds count."""
    if isinstance(arrived, Model):
        return Held(round, arrived, b"")  # no digest: the connection is checked, and nobody asks for it
    if held is None:
        raise EngineError("The server asked about a model that it has not sent.")
    if arrived is None:
        return replace(held, round=round)
    return open_parcel(arrived, held, len(held.model.weights), len(held.model.buffers))
