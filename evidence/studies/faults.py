"""A run over `protocol/` in which clients and messages fail in every way, and the server is killed at any step.

Nothing in the protocol needs a clock or a socket, so that a seed decides everything and thousands of runs take minutes:

    python -m evidence.studies.faults --scenarios 10000 --out evidence/records/faults.json

A run must not hang, must raise nothing except this package's errors, must play all its rounds, and must end in the
model of a run without faults in which the same replies counted (`fault_record.py`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import adaquantfl as aq
from adaquantfl import checkpoint
from adaquantfl.protocol.messages import SIGNATURE_SIZE, Reply
from adaquantfl.protocol.parcels import Held, digest_of

from .fault_record import ClientEvent, PlayedRound, Restored, Training, Violation, check_client, check_server
from .fault_scenario import ETA, Scenario, examples, loss_at, train

STEPS_PER_ROUND = 400  # more is a hang
CALM_AFTER = 4  # attempts to close a round; then nothing fails until it is closed
CHUNK = 50  # scenarios that a process plays at a time
Record = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """On its way. kind: an order, a reply, or that a client needs the whole model."""

    kind: str
    client: int
    data: bytes = b""
    forged: bool = False


Written = bytes | dict[str, Any]


class Bench:
    """One run. counts: what happened, by kind."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.draw, self.counts = scenario, random.Random(-1 - scenario.seed), Counter[str]()
        self.secrets = scenario.keys()
        self.server = scenario.server()
        self.is_open = False
        self.written = self._write(self.server.state())
        self.written_diverged: dict[int, bytes] = {}
        self.clients = {number: self._empty(number) for number in range(scenario.clients)}
        self.states = {number: [self._write(client.state())] for number, client in self.clients.items()}
        self.events: dict[int, list[ClientEvent]] = {number: [] for number in self.clients}
        self.rounds: list[PlayedRound] = []
        self.network: list[Message] = []
        self.seen: list[Message] = []  # to be sent again
        self.base: dict[tuple[int, bytes], set[bytes]] = {}  # (client, its reply) -> the models it was trained from
        self.digests: set[bytes] = {digest_of(self.server.model)}
        self.forged: set[bytes] = set()
        self.attempts = self.waits = self.points = 0

    # --- The run

    def run(self) -> Counter[str]:
        """All rounds, and what must hold then. Violation otherwise."""
        for _ in range(STEPS_PER_ROUND * self.scenario.rounds):
            if not self.is_open and self.server.current.round >= self.scenario.rounds:
                break
            self._step()
        else:
            raise Violation(f"it hangs in round {self.server.current.round}")
        self.counts["rounds"] += len(self.rounds)
        if [played.facts.get("round") for played in self.rounds] != list(range(1, self.scenario.rounds + 1)):
            raise Violation("a round is lost")
        check_server(self.scenario.server(), self.rounds)
        for number, events in self.events.items():
            check_client(number, self.secrets.get(number, b""), events)
        return self.counts

    def _step(self) -> None:
        if not self.is_open:
            self._open()
        elif self.network and self.waits < 12 * (1 + len(self.server.missing)):
            self.waits += 1
            self._deliver(self.network.pop(self.draw.randrange(len(self.network))))
        else:
            self._close()
        if self._happens(self.scenario.client_kill):
            self._kill_client(self.draw.randrange(self.scenario.clients))

    def _open(self) -> None:
        # A restarted server may ask other clients; without other faults it asks the same ones, so that runs compare.
        scenario, round = self.scenario, self.server.current.round
        draw = self.draw if scenario.fault else random.Random(scenario.seed * 1000 + round)
        asked = None
        if not scenario.known:
            asked = draw.sample(range(scenario.clients), draw.randint(1, scenario.clients))
        loss = None
        if self.server.wants_loss() or draw.random() < 0.2:
            loss = float(np.mean([loss_at(number, self.server.weights) for number in self.clients]))
        orders = self.server.open(asked, ETA, loss)
        self.is_open, self.attempts, self.waits = True, 0, 0
        self.rounds.append(PlayedRound(asked, ETA, loss))
        self.network += [Message("order", client, order) for client, order in orders.items()]
        self.counts["messages"] += len(orders)
        if self._happens(0.1):
            holds = None if self.draw.random() < 0.5 else ...
            viewed = {client: self.server.order(client, holds, evaluate=True) for client in self.clients}
            self.network += [Message("order", client, order) for client, order in viewed.items()]
        self._point("open")

    def _close(self) -> None:
        self._point("before close")
        if not self.is_open:
            return
        before = self.server.current.ledger
        try:
            closed = self.server.close()
        except aq.EngineError:
            self.attempts, self.waits = self.attempts + 1, 0
            for client in self.server.missing:
                self.network.append(Message("needs", client))
            return
        if not self.server.current.layout.is_finite(closed.model):
            raise Violation(f"the model of round {closed.facts['round']} is not finite")
        after = self.server.current.ledger
        if any(getattr(after, name) < value for name, value in asdict(before).items()):
            raise Violation("the ledger decreases")
        self.counts["taken back"] += bool(closed.facts.get("undone"))
        self.is_open, self.attempts = False, 0
        self.rounds[-1].facts, self.rounds[-1].digest = closed.facts, digest_of(self.server.model)
        self.digests.add(self.rounds[-1].digest)
        self._point("close")

    # --- Messages

    def _deliver(self, message: Message) -> None:
        """A message arrives, or does not, or something else does."""
        if self._happens(self.scenario.fault):
            fault = self.draw.choice(FAULTS)
            self.counts[fault.__name__.strip("_")] += 1
            fault(self, message)
        else:
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        if len(self.seen) < 60:
            self.seen.append(message)
        else:
            self.seen[self.draw.randrange(60)] = message
        {"order": self._at_client, "reply": self._at_server, "needs": self._needed}[message.kind](message)

    def _at_client(self, message: Message) -> None:
        number, client = message.client, self.clients[message.client]
        try:
            weights = client.open(message.data)
        except aq.ModelNeeded:
            self.network.append(Message("needs", number))
            return
        except aq.Refused:
            self.counts["orders refused"] += 1
            return
        held = client._models.last
        assert held is not None
        if held.digest not in self.digests or digest_of(held.model) != held.digest:
            raise Violation(f"client {number} opened a model that the server never had")
        if not client.order.evaluate:
            self._train(number, client, held, weights)

    def _train(self, number: int, client: aq.Client, held: Held, weights: Any) -> None:
        trained, loss = train(number, weights), loss_at(number, weights)
        if self._happens(self.scenario.fault / 8):
            loss *= 50  # for a server that rolls back
            self.counts["loss rose"] += 1
        elif self._happens(self.scenario.fault / 8):
            loss = float("nan")
            self.counts["diverged"] += 1
        reply = client.reply(trained, loss, examples(number))
        order = replace(client.order, parcel=b"", layout="")
        self.events[number].append(Training(order, held, trained, loss, examples(number), reply))
        self.states[number].append(self._write(client.state()))
        self.base.setdefault((number, reply), set()).add(held.digest)
        self.network.append(Message("reply", number, reply))
        self.counts["messages"] += 1

    def _at_server(self, message: Message) -> None:
        if not self.is_open:
            self.counts["replies between rounds"] += 1
            return
        number, played = message.client, self.rounds[-1]
        before = digest_of(self.server.model)
        try:
            self.server.receive(number, message.data)
        except aq.Refused as refusal:
            self.counts["replies refused"] += 1
            if "has diverged:" in str(refusal):
                played.diverged.setdefault(number, message.data)
        else:
            self._check_taken(number, message.data, before)
            played.taken[number] = message.data
            self.counts["replies taken"] += 1
        self._point("receive")

    def _check_taken(self, number: int, data: bytes, present: bytes) -> None:
        """A reply that counts is what this client made from this model, or a good forgery, where none is signed."""
        if data in self.forged and (number, data) not in self.base:
            if self.secrets:
                raise Violation(f"a forged reply of client {number} counts, although replies are signed")
            return
        # Without secrets, who was given an order of somebody else can answer it.
        makers = [number] if self.secrets else self.clients
        if not any(present in self.base.get((maker, data), ()) for maker in makers):
            raise Violation(f"a reply of client {number} counts that was not made from the model of the round")

    def _needed(self, message: Message) -> None:
        """The whole model for a client that needs it, or that did not answer."""
        if self.is_open and message.client in self.server.missing:
            self.network.append(Message("order", message.client, self.server.order(message.client, holds=None)))
            self.counts["whole orders"] += 1
            self._point("whole order")

    # --- Kills

    def _point(self, name: str) -> None:
        """A step of the server: it may be killed before and after its state is written."""
        self._maybe_kill(f"{name}, not written")
        if self.draw.random() < self.scenario.write:
            self.written = self._write(self.server.state())
            self.written_diverged = dict(self.rounds[-1].diverged) if self.is_open else {}
            self._maybe_kill(f"{name}, written")

    def _maybe_kill(self, where: str) -> None:
        self.points += 1
        if self.points - 1 == self.scenario.kill_at or self._happens(self.scenario.kill):
            self.counts[f"kill: {where}"] += 1
            self._kill_server()

    def _kill_server(self) -> None:
        tree = _read(self.written)
        self.server = aq.Server.restore(tree, secrets=self.secrets)
        self.is_open, self.waits = "open" in tree, 0
        del self.rounds[tree["round"] + self.is_open :]  # what came after was never written
        if self.is_open:
            kept = {int(client): data for client, data in tree["open"]["replies"].items()}
            played = self.rounds[-1]
            self.rounds[-1] = PlayedRound(played.asked, played.eta, played.loss, kept, dict(self.written_diverged))
        if self.scenario.packed and self._write(self.server.state()) != self.written:
            raise Violation("a restored server writes another state than the one it was restored from")

    def _kill_client(self, number: int) -> None:
        kept = self.draw.choice((0, 0, self.draw.randrange(len(self.states[number]))))
        self.counts["client restarted empty" if kept == 0 else "client restored from an earlier state"] += 1
        secret = self.secrets.get(number, b"")
        self.clients[number] = aq.Client.restore(_read(self.states[number][kept]), secret=secret)
        self.events[number].append(Restored(kept))

    def _empty(self, number: int) -> aq.Client:
        return aq.Client(number, secret=self.secrets.get(number, b""))

    def _write(self, tree: dict[str, Any]) -> Written:
        return checkpoint.pack(tree) if self.scenario.packed else tree

    def _happens(self, chance: float) -> bool:
        return self.attempts < CALM_AFTER and self.draw.random() < chance

    # --- Faults of messages

    def _lost(self, message: Message) -> None:
        """It does not arrive."""

    def _delayed(self, message: Message) -> None:
        """It arrives later, perhaps in a later round."""
        self.waits -= 1
        self.network.append(message)

    def _duplicated(self, message: Message) -> None:
        """It arrives now and again."""
        self._arrive(message)
        self.network.append(message)

    def _corrupted(self, message: Message) -> None:
        """Bits or the end of it are others."""
        data = bytearray(message.data)
        for _ in range(self.draw.randint(1, 3) if data else 0):
            data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
        if self.draw.random() < 0.3:
            del data[self.draw.randrange(len(data) + 1) :]
        self._arrive(replace(message, data=bytes(data)))

    def _forged(self, message: Message) -> None:
        """A reply with another content and a right checksum."""
        if message.kind != "reply":
            self._lost(message)
            return
        data = message.data[:-SIGNATURE_SIZE] if self.secrets else message.data
        try:
            reply = Reply.unpack(data)
        except aq.FrameError:  # it was corrupted before
            self._lost(message)
            return
        change: dict[str, Any] = self.draw.choice(
            [
                {"loss": self.draw.choice((0.0, -1.0, 1e300, 1e-300))},
                {"examples": self.draw.choice((0, 1, 2**32 - 1))},
                {"round": reply.round + self.draw.choice((-1, 1)) if reply.round else 1},
                {"frame": b"", "loss": float("nan")},
                {"frame": reply.frame[:-4], "others": b"1234"},
                {"order": self.draw.getrandbits(32)},
            ]
        )
        forged = replace(reply, **change).pack() + (bytes(SIGNATURE_SIZE) if self.secrets else b"")
        self.forged.add(forged)
        self._arrive(replace(message, data=forged))

    def _replayed(self, message: Message) -> None:
        """An earlier message arrives first."""
        if self.seen:
            self._arrive(self.draw.choice(self.seen))
        self._arrive(message)

    def _misdirected(self, message: Message) -> None:
        """It arrives at, or is said to be from, another client; perhaps one that does not exist."""
        other = self.draw.randrange(self.scenario.clients + (message.kind == "reply"))
        self._arrive(replace(message, client=other))
        self.network.append(message)

    def _vanished(self, message: Message) -> None:
        """The client is gone, and the server is told so."""
        if self.is_open:
            self.server.absent(message.client, "it is gone.")
            self._point("absent")


FAULTS: tuple[Callable[[Bench, Message], None], ...] = (
    Bench._lost,
    Bench._delayed,
    Bench._duplicated,
    Bench._corrupted,
    Bench._forged,
    Bench._replayed,
    Bench._misdirected,
    Bench._vanished,
)


def _read(written: Written) -> dict[str, Any]:
    """A state as another process would read it."""
    return checkpoint.unpack(written if isinstance(written, bytes) else checkpoint.pack(written))


# --- Many of them


def run_some(seeds: Sequence[int]) -> tuple[Counter[str], dict[int, str]]:
    """What happened in the scenarios of these seeds, and which of them did not hold, and why."""
    counts, failures = Counter[str](), {}
    for seed in seeds:
        bench = Bench(Scenario.of(seed))
        try:
            bench.run()
        except Exception as error:  # whatever it is, it is a failure
            failures[seed] = f"{type(error).__name__}: {error}"
        counts += bench.counts
    return counts, failures


def run_many(first: int, scenarios: int) -> Record:
    """The scenarios of these seeds in this process."""
    return added({"first": first}, scenarios, run_some(range(first, first + scenarios)))


def added(record: Record, scenarios: int, found: tuple[Counter[str], dict[int, str]]) -> Record:
    """The record with so many more scenarios."""
    counts, failures = found
    kills = Counter(record.get("kills_by_step", {})) + Counter(
        {name.removeprefix("kill: "): n for name, n in counts.items() if name.startswith("kill: ")}
    )
    totals = {name: record.get(name, 0) + counts[name] for name in ("rounds", "messages")}
    others = {name: n for name, n in counts.items() if name not in totals and not name.startswith("kill: ")}
    events = Counter(record.get("events", {})) + Counter(others)
    return {
        "first": record["first"],
        "scenarios": record.get("scenarios", 0) + scenarios,
        **totals,
        "kills": kills.total(),
        "kills_by_step": dict(sorted(kills.items())),
        "events": dict(sorted(events.items())),
        "failures": {**record.get("failures", {}), **{str(seed): why for seed, why in failures.items()}},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=10_000, help="until the record has so many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="the record; where it exists, it is continued")
    options = parser.parse_args(arguments)
    record: Record = json.loads(options.out.read_text()) if options.out.exists() else {"first": 0, "scenarios": 0}
    seeds = range(record["first"] + record["scenarios"], record["first"] + options.scenarios)
    chunks = [seeds[place : place + CHUNK] for place in range(0, len(seeds), CHUNK)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for chunk, found in zip(chunks, pool.imap(run_some, chunks), strict=True):
            record = added(record, len(chunk), found)
            options.out.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
