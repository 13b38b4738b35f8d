"""The server's ends of its connections: one thread per client sends a call and waits for the answer."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from torch.distributed import TCPStore

from ..calls import Call, Failure
from .connection import CONNECT_SECONDS, EXCHANGE_SECONDS, SERVER, Connection
from .rendezvous import (
    ADMITTED,
    ARRIVAL,
    ARRIVALS,
    CONNECTION,
    POLL_SECONDS,
    REFUSED,
    address_facing,
    open_store,
    server_part,
)
from .secrets import SEAL_BYTES, Seal, join_proof, same
from .wire import ANSWER_BYTES, END, AnswerError, pack_call, unpack_answer

_SHORT_MESSAGE_SECONDS = 10.0  # to send a header to a client that is listening
_ANNOUNCE_SECONDS = 30.0  # for an arrival that has taken a number to say who it is
_MOST_UNANNOUNCED = 1_000  # numbers that are looked at in one go
_log = logging.getLogger("adaquantfl")


JOINED = "joined"  # news of a client that has connected


@dataclass(frozen=True)
class ClientLost:
    """News of a connection that has ended. reason: what the client did wrong; empty where it just closed."""

    reason: str = ""


Report = Callable[["RemoteClient", Any], None]  # takes news of a client: JOINED, ClientLost, or an answer


class RemoteClient:
    """One connected client. most_bytes: the longest reply that is accepted. seal: of its answers, if it has a secret.

    task: what it is asked and has not answered yet; empty where it is idle. deadline: for that. The engine sets both.
    """

    def __init__(
        self, client: int, connection: Connection, most_bytes: int, report: Report, seal: Seal | None = None
    ) -> None:
        self.client = client
        self.task, self.deadline = "", 0.0
        self._connection, self._most_bytes, self._report = connection, most_bytes, report
        self._seal = seal
        self.holds: bytes | None = None  # the digest of the model that the client holds; None: not known
        self._number = 0  # of the last call
        self._calls: SimpleQueue[tuple[Call, bytes | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"adaquantfl-client-{client}", daemon=True)
        self._thread.start()

    @property
    def overdue(self) -> bool:
        """Whether it has not answered by the deadline."""
        return bool(self.task) and time.monotonic() >= self.deadline

    def ask(self, call: Call, digest: bytes | None = None) -> None:
        """Send a call; an event will follow. digest: of the model that the client holds when it has answered."""
        self._calls.put((call, digest))

    def finish(self) -> None:
        """Tell the client that the run is over, once it has answered."""
        self._calls.put(None)

    def close(self, timeout: float = 0.0) -> None:
        """End the connection. timeout: seconds for `finish` to reach the client."""
        self._thread.join(max(0.0, timeout))
        if self._thread.is_alive():
            self.finish()
            self._connection.abort()
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                asked = self._calls.get()
                if asked is None:
                    self._connection.send(pack_call(0, Call(END, self.client))[0], _SHORT_MESSAGE_SECONDS)
                    return
                call, digest = asked
                answer = self._exchange(call)
                if digest is not None:
                    self.holds = None if isinstance(answer, Failure) else digest
                self._report(self, answer)
                del call, asked  # frees the model's bytes while the client is idle
        except AnswerError as error:
            self._connection.abort()
            self._report(self, ClientLost(str(error)))
        except MemoryError:
            self._connection.abort()
            self._report(self, ClientLost("the server had not enough memory for its messages."))
        except RuntimeError:  # gloo's, whatever happened to the connection
            self._report(self, ClientLost())

    def _exchange(self, call: Call) -> Any:
        self._number += 1
        for part in pack_call(self._number, call):
            self._connection.send(part, EXCHANGE_SECONDS)
        data = self._connection.receive(ANSWER_BYTES, EXCHANGE_SECONDS)
        header = unpack_answer(data, self._number, call, self._most_bytes)
        body = self._connection.receive(header.size, EXCHANGE_SECONDS)
        if self._seal and not self._seal.fits(self._connection.receive(SEAL_BYTES, EXCHANGE_SECONDS), data, body):
            raise AnswerError("its answer is not signed with this client's secret.")
        return header.answer(body)


class Listener:
    """A thread that connects to clients whenever they arrive: at the start, or again after they were lost.

    server: its name in the store. secrets: client -> its secret; without any, every client is who it says it is.
    """

    def __init__(
        self, store: TCPStore, server: str, clients: int, most_bytes: int, report: Report, secrets: Mapping[int, bytes]
    ) -> None:
        self._address = store.host, store.port
        self._part, self._server, self._clients = server_part(store, server), server, clients
        self._most_bytes, self._report, self._secrets = most_bytes, report, secrets
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="adaquantfl-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(10 * POLL_SECONDS)  # it takes longer only where a client is lost while it connects

    def _run(self) -> None:
        seen, unannounced = 0, dict[int, float]()  # number of an arrival -> until when it may say who it is
        while not self._closed.wait(POLL_SECONDS):
            try:
                numbers = range(seen + 1, min(self._part.add(ARRIVALS, 0), seen + _MOST_UNANNOUNCED) + 1)
                seen += len(numbers)
                unannounced |= dict.fromkeys(numbers, time.monotonic() + _ANNOUNCE_SECONDS)
                for number, deadline in list(unannounced.items()):
                    if self._part.check([ARRIVAL(number)]):  # the store's `wait` logs each timeout
                        threading.Thread(target=self._admit, args=(number,), daemon=True).start()
                    elif time.monotonic() < deadline:
                        continue  # it may have died: the others do not wait for it
                    del unannounced[number]
            except RuntimeError:  # the launcher's store is gone: no client can join any more
                return

    def _admit(self, number: int) -> None:
        try:
            # A dead arrival is given up after 30 s. A connection to the store that waits for it lets nobody else ask,
            # so that each arrival has one of its own.
            store = server_part(open_store(*self._address, CONNECT_SECONDS), self._server)
            client, address, proof = json.loads(store.get(ARRIVAL(number)))
            if not self._proven(number, client, address, proof):
                store.set(ADMITTED(number), REFUSED)
                _log.warning("A process at %r that says it is client %r was refused: wrong secret.", address, client)
                return
            ours = address_facing(address)
            store.set(ADMITTED(number), "")
            connection = Connection(store, CONNECTION(number), SERVER, ours)
        except Exception:  # the arrival has gone, or is no client of ours: the next one must be admitted
            return
        if self._closed.is_set() or client not in range(self._clients):
            connection.abort()
        else:
            secret = self._secrets.get(client)
            seal = Seal(secret, self._server + CONNECTION(number)) if secret else None
            self._report(RemoteClient(client, connection, self._most_bytes, self._report, seal), JOINED)

    def _proven(self, number: int, client: Any, address: str, proof: str) -> bool:
        """Whether an arrival knows the secret of the client that it says it is."""
        if not self._secrets:
            return True
        secret = self._secrets.get(client)
        return secret is not None and same(proof, join_proof(secret, self._server, number, client, address))
