"""The gloo engine at the server: which client is asked what, and until when the server waits for an answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, ClassVar
from uuid import uuid4

from torch.distributed import TCPStore

from ... import checkpoint
from ...errors import CheckpointError
from ...protocol.cohort import who_is_missing
from ...protocol.server import Server
from ...training.settings import Settings
from ..base import Engine
from ..calls import Call, Failure
from .processes import ClientProcesses
from .remote import JOINED, ClientLost, Listener, RemoteClient
from .rendezvous import JOIN_SECONDS, announce_run
from .secrets import server_secrets
from .wire import RESTORE, STATE

_log = logging.getLogger("adaquantfl")
_ABSENT_POLL_SECONDS = 0.2  # between two looks at clients that have not joined yet
_ENDING_SECONDS = 5.0  # for a client's process to end by itself
_REPLY_BYTES_PER_MODEL_BYTE = 16  # more than any codec and scope takes
_REPLY_BYTES_BESIDES = 2**20

Finished = tuple[int, Any]  # a call's place and its answer


class GlooEngine(Engine):
    """Clients are processes that join through the store; see `Engine`.

    processes: the clients' processes, where this engine started them. A client that has not answered by its deadline is
    not asked again until it has.
    """

    name: ClassVar[str] = "gloo"
    states_at_hand: bool = False

    def __init__(self, config: Settings, store: TCPStore, processes: ClientProcesses | None = None) -> None:
        super().__init__(config)
        self.secrets = server_secrets(config.clients)
        self.store = store
        self._processes = processes
        self._clients: dict[int, RemoteClient] = {}
        self._expected = set(range(config.clients))  # clients that have not joined yet
        self._join_deadline = time.monotonic() + JOIN_SECONDS
        self._lost: dict[int, str] = {}  # client -> why it is not there
        self._events: SimpleQueue[tuple[RemoteClient, Any]] = SimpleQueue()
        model_bytes = sum(array.nbytes for array in self.player.trainer.weights().values())
        most_bytes = _REPLY_BYTES_BESIDES + _REPLY_BYTES_PER_MODEL_BYTE * model_bytes
        server = uuid4().hex
        self._listener: Listener | None = Listener(store, server, config.clients, most_bytes, self._note, self.secrets)
        announce_run(store, server, config, signed=bool(self.secrets))

    def carry(self, server: Server | None, calls: list[Call]) -> Iterator[Finished]:
        """The answers as they come. server: None where calls are not about a model."""
        waiting = dict(enumerate(calls))  # place -> a call that has not been sent
        places: dict[RemoteClient, int] = {}  # who was asked -> the place of its call
        self._take_in_waiting_events()
        finished = self._send_calls(waiting, places, server)
        while waiting or places:
            yield from finished
            finished = self._listen(places)
            finished += self._send_calls(waiting, places, server)
        yield from finished

    def client_states(self) -> dict[str, Any]:
        """The state of each client; None for one that cannot hand it over."""
        calls = [Call(STATE, client, b"") for client in range(self.config.clients)]
        return {str(client): _read_state(answer) for client, answer in sorted(self.carry(None, calls))}

    def restore_clients(self, states: Mapping[str, Any]) -> None:
        calls = [Call(RESTORE, int(client), checkpoint.pack(state)) for client, state in states.items()]
        answers = {calls[place].client: answer for place, answer in self.carry(None, calls)}
        missing = {client: answer.reason for client, answer in answers.items() if isinstance(answer, Failure)}
        if missing:
            _log.warning(
                "Not every client got back what it had left out of its updates (error feedback): %s",
                who_is_missing(missing),
            )

    def close(self) -> None:
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        self._take_in_waiting_events()
        remotes, deadline = self._clients.values(), time.monotonic() + _ENDING_SECONDS
        for remote in remotes:
            remote.finish()
        for remote in remotes:
            remote.close(0.0 if remote.task else deadline - time.monotonic())
        if self._processes is not None:
            busy = {remote.client for remote in remotes if remote.task}
            self._processes.close(busy, deadline - time.monotonic())
        self._clients = {}

    def _send_calls(
        self, waiting: dict[int, Call], places: dict[RemoteClient, int], server: Server | None
    ) -> list[Finished]:
        """Send what can be sent; returns the calls that no client will answer."""
        failures = []
        for place, call in list(waiting.items()):
            remote = self._choose_client(call)
            if remote is None:
                continue
            del waiting[place]
            if isinstance(remote, Failure):
                failures.append((place, remote))
            else:
                places[remote] = place
                remote.task, remote.deadline = _about(call, server), self._deadline(call)
                if server is None:
                    remote.ask(call)
                else:
                    remote.ask(call.ordered(server, remote.holds), server.digest)
        return failures

    def _choose_client(self, call: Call) -> RemoteClient | Failure | None:
        """A client that can be asked now; a failure if none ever will; None while that is open."""
        if call.client in self._lost:
            return Failure(self._lost[call.client])
        remote = self._clients.get(call.client)
        if remote is not None and remote.overdue:
            return Failure(f"still busy with {remote.task}; it takes part again when it has answered.")
        return remote if remote is not None and not remote.task else None

    def _deadline(self, call: Call) -> float:
        return time.monotonic() + self.config.round_timeout

    def _listen(self, places: dict[RemoteClient, int]) -> list[Finished]:
        """Wait for an event, at most until the next deadline; returns the calls that it ends."""
        finished = []
        now = time.monotonic()
        deadlines = [remote.deadline for remote in self._clients.values() if remote.task and remote.deadline > now]
        if self._expected or not deadlines:
            deadlines.append(now + _ABSENT_POLL_SECONDS)
        try:
            remote, answer = self._take_in(*self._events.get(timeout=min(deadlines) - now))
            if remote in places:  # it is not where the call was given up before
                finished.append((places.pop(remote), answer))
        except Empty:
            pass
        for remote in [remote for remote in places if remote.overdue]:
            reason = f"no answer within round_timeout = {self.config.round_timeout:g} s."
            finished.append((places.pop(remote), Failure(reason)))
        self._give_up_on_absent()
        return finished

    def _note(self, *news: Any) -> None:
        self._events.put(news)

    def _take_in_waiting_events(self) -> None:
        while not self._events.empty():
            self._take_in(*self._events.get())

    def _take_in(self, remote: RemoteClient, news: Any) -> tuple[RemoteClient, Any]:
        """Note who is there and who is free; returns the client whose call ends, if it has one, and the answer."""
        client = remote.client
        if news is JOINED:
            former = self._clients.get(client)
            self._clients[client] = remote
            self._expected.discard(client)
            self._lost.pop(client, None)
            if former is None:
                return remote, None
            former.close()
            return former, Failure("it was restarted during the round.")
        remote.task = ""
        if not isinstance(news, ClientLost):
            return remote, news
        if self._clients.get(client) is remote:
            del self._clients[client]
            self._lost[client] = news.reason or self._why_lost(client)
        return remote, Failure(self._lost.get(client, "its connection was replaced by a new one."))

    def _why_lost(self, client: int) -> str:
        ended = self._processes.ended(client, _ENDING_SECONDS) if self._processes else None
        if ended is not None:
            return f"its process has ended ({ended})."
        return "its connection is lost; it can be started again and joins in from then on."

    def _give_up_on_absent(self) -> None:
        for client in list(self._expected):
            ended = self._processes.ended(client) if self._processes else None
            if ended is not None:
                self._lost[client] = f"its process ended before it joined ({ended})."
            elif time.monotonic() > self._join_deadline:
                self._lost[client] = f"it did not join within {JOIN_SECONDS:g} s."
            else:
                continue
            self._expected.discard(client)


def _about(call: Call, server: Server | None) -> str:
    if call.name == "train" and server is not None:
        return f"round {server.current.round + 1}"
    return "a checkpoint" if call.name in (STATE, RESTORE) else "an evaluation"


def _read_state(answer: Any) -> dict[str, Any] | None:
    try:
        return None if isinstance(answer, Failure) else checkpoint.unpack(answer)
    except CheckpointError:
        return None
