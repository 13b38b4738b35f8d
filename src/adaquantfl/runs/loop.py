"""A run from its configuration to its summary: rounds, evaluations, history, checkpoints; resuming after a stop."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.calls import Failure
from ..engines.launch import Observer
from ..engines.local import LocalEngine
from ..errors import Refused
from ..protocol.server import Server
from ..protocol.stages import Stages
from ..protocol.state import Ledger
from ..training import methods, own_files
from . import columns, provenance, tracking
from .config import Config, load_config
from .directory import RunDirectory, check_changes, described
from .state import RunState, finished, reached

if TYPE_CHECKING:
    from ..engines.base import Engine

_log = logging.getLogger("adaquantfl")

Connect = Callable[[Config], "Engine"]  # an engine with its clients at hand


class Run:
    """A server, an engine that reaches its clients, and where the run is."""

    def __init__(self, config: Config, engine: Engine, saved: Mapping[str, Any] | None = None) -> None:
        self.config, self.engine = config, engine
        trainer = engine.player.trainer
        stages = config.stages(trainer.examples)
        if saved is None:
            began = time.perf_counter()
            self.server = self._serve(stages)
            first = engine.evaluate(self.server)
            took = time.perf_counter() - began
            self.state = RunState(0, None, Ledger(), first, first, 0, first.rule_loss, took)
        else:
            self.server = self._serve(stages, saved["server"])
            self.state = RunState.of(saved["run"])
            engine.restore_clients({client: state for client, state in saved["clients"].items() if state is not None})
        self._clients: dict[str, Any] | None = saved["clients"] if saved else {}

    def _serve(self, stages: Stages, tree: Mapping[str, Any] | None = None) -> Server:
        """The server, from its start or from where it was."""
        trainer, private, secrets = self.engine.player.trainer, self.config.make_private(), self.engine.secrets
        if private.masks:
            from ..private.server import Server as PrivateServer  # it needs the extra

            if tree is not None:
                return PrivateServer.resume(tree, private, stages)
            return PrivateServer(trainer.weights(), private, exact=trainer.buffer_names, stages=stages)
        if tree is not None:
            return Server.restore(tree, stages=stages, secrets=secrets)
        return Server(trainer.weights(), exact=trainer.buffer_names, stages=stages, secrets=secrets)

    def tree(self) -> dict[str, Any]:
        """All that it takes to resume after the last complete round, where that is `resumable`."""
        return {
            "run": asdict(self.state),
            "server": self.server.state(),
            "clients": self._clients,
            "config": described(self.config),
        }

    @property
    def resumable(self) -> bool:
        """Whether the clients' states after the last complete round are known: see `Engine.states_at_hand`."""
        return self._clients is not None

    @property
    def finished(self) -> bool:
        """Whether the budget of rounds is used up or the target is reached."""
        return finished(self.state, self.config)

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is written after this round, even if nothing stops the run."""
        return self.finished or self.state.round % self.config.checkpoint_every == 0

    def play_round(self, record: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """One round and, where it is due, an evaluation. The round counts once `record` has written its line.

        Whatever stops it before leaves the run as it was after the round before.
        """
        state, server = self.state, self.server.current
        try:
            with methods.blamed_round(state.round + 1):
                line = self._evaluate(self._exchange())
            clients: dict[str, Any] | None = {}
            if self.server.current.keeps:  # clients leave something out, or did
                due = self.checkpoint_due or self.engine.states_at_hand
                clients = self.engine.client_states() if due else None
            record(line)
        except BaseException:
            self.state = state
            self.server.return_to(server)
            raise
        self._clients = clients
        return line

    def _exchange(self) -> dict[str, Any]:
        began, config, server = time.perf_counter(), self.config, self.server
        loss = self.state.rule_loss if config.loss == "full" else None
        orders = server.open(eta=config.learning_rate(self.state.round), loss=loss)
        server_seconds = train_seconds = encode_seconds = 0.0  # added up over clients, who work side by side
        while orders:
            for client, answer in self.engine.train(server, orders):
                arrived = time.perf_counter()
                if isinstance(answer, Failure):
                    server.absent(client, answer.reason)
                    continue
                try:
                    server.receive(client, answer.reply)
                    train_seconds += answer.train_seconds
                    encode_seconds += answer.encode_seconds
                except Refused:
                    pass  # the server has noted why, and the history will say so
                server_seconds += time.perf_counter() - arrived
            arrived = time.perf_counter()
            orders = server.further()
            server_seconds += time.perf_counter() - arrived
        closing = time.perf_counter()
        line = server.close().facts
        ended = time.perf_counter()
        server_seconds += ended - closing
        current, total = server.current, self.state.seconds + ended - began
        self.state = replace(self.state, round=current.round, s=line["s"], ledger=current.ledger, seconds=total)
        spent = {"train": train_seconds, "encode": encode_seconds, "aggregate": server_seconds}
        return {**line, "seconds": {"round": ended - began, **spent}}

    def _evaluate(self, line: dict[str, Any]) -> dict[str, Any]:
        """Evaluate the model if it is time to, and note the loss levels that it reaches for the first time.

        Levels count on the rounds that every method evaluates. What the rule alone asks for is written down as
        rule_loss: looking more often would make AdaQuantFL seem to arrive earlier than methods that do not ask.
        """
        began, state, config = time.perf_counter(), self.state, self.config
        if state.round % config.evaluate_every == 0 or state.round >= config.rounds:
            found = self.engine.evaluate(self.server)
            targets = reached(state, found.loss, line, config.target_loss)
            state = replace(state, latest=found, latest_round=state.round, rule_loss=found.rule_loss, targets=targets)
            line = {**line, "loss": found.loss, **found.test}
        elif config.loss == "full" and self.server.wants_loss():
            found = self.engine.evaluate(self.server, test=False)
            state = replace(state, rule_loss=found.rule_loss)
            line = {**line, "rule_loss": found.loss}
        else:
            return line
        if found.refused:
            line = {**line, "refused_losses": found.refused}
        if found.bounded:
            line = {**line, "bounded": sorted({*line.get("bounded", ()), *found.bounded})}
        took = time.perf_counter() - began
        self.state = replace(state, seconds=state.seconds + took)
        return {**line, "seconds": {**line["seconds"], "evaluate": took}}

    def summary(self, history: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """What the run came to. history: the lines of its rounds."""
        state, weights = self.state, self.server.model.weights
        last = {"loss": state.latest.loss, **state.latest.test}
        start = {"loss": state.initial.loss, **state.initial.test}
        return {
            "engine": self.engine.name,
            **columns.summary_of([*history, last], start),
            "targets": state.targets,
            "model_sha256": hashlib.sha256(weights.astype("<f4").tobytes()).hexdigest(),
            "seconds": state.seconds,
            "dimension": len(weights),
            **provenance.of_this_process(),
        }


@dataclass(frozen=True)
class Request:
    """A new run of a configuration into `out`; without one, the run in `out` is resumed, with the changes."""

    out: Path
    config: Config | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own_files(self) -> dict[str, str]:
        """The user's own files that it is about, FILE.py:NAME by key; none where there is nothing to resume."""
        file = self.out / "config.toml"
        config = self.config or (load_config(file) if file.is_file() else None)
        return {key: str(own) for key, own in own_files.named(config.to_dict()).items()} if config else {}

    def play(self, observer: Observer | None = None, connect: Connect | None = None) -> dict[str, Any]:
        """Carry it out; returns the run's summary. connect: makes the engine; by default the local one."""
        if self.config is None:
            return resume(self.out, self.changes, observer, connect)
        return run(self.config, self.out, observer, connect)


def run(config: Config, out: Path, observer: Observer | None = None, connect: Connect | None = None) -> dict[str, Any]:
    """Play a new run into the folder `out`; returns its summary."""
    tracking.check(config)
    directory = RunDirectory(out)
    engine = (connect or LocalEngine)(config)  # before the folder is made: missing data leaves nothing behind
    engine.player.kept.folder = out
    try:
        directory.create(config)
        return _play(Run(config, engine), directory, observer, saved=-1)
    finally:
        directory.close()
        engine.close()


def resume(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
    connect: Connect | None = None,
) -> dict[str, Any]:
    """Resume the run in `out` from its last checkpoint, or from its start; a finished run gives its summary."""
    changes = changes or {}
    check_changes(changes)
    directory = RunDirectory(out)
    try:
        config, saved = directory.resume(changes)
        state = RunState.of(saved["run"]) if saved else None
        done = directory.summary()
        if done is not None and state is not None and finished(state, config):
            return done
        tracking.check(config)
        if saved is None:
            _log.warning("%s has no checkpoint yet: the run starts again, with its configuration.", out)
        _check_feedback(saved)
        engine = (connect or LocalEngine)(config)  # before anything is changed: its task may be gone, or another
        engine.player.kept.folder = out
        try:
            run = Run(config, engine, saved)
            directory.reopen(config, run.state.round)
            return _play(run, directory, observer, saved=state.round if state else -1)
        finally:
            engine.close()
    finally:
        directory.close()


def _play(run: Run, directory: RunDirectory, observer: Observer | None, saved: int) -> dict[str, Any]:
    config = run.config
    try:
        with tracking.tracked(config, directory.path, run.state.round) as tracker:
            observers = [tracker, observer] if observer else [tracker]
            for tell in observers:
                tell(config, run.state, None)
            while not run.finished:
                line = run.play_round(directory.append)
                if run.checkpoint_due:
                    directory.save(run.tree())
                    saved = run.state.round
                for tell in observers:
                    tell(config, run.state, line)
    finally:  # also on Ctrl-C and on a client's error: the finished rounds are kept
        if run.state.round not in (saved, 0) and run.resumable:
            directory.save(run.tree())
    if run.state.latest_round != run.state.round:  # resumed with a budget that is used up already
        run.state = replace(run.state, latest=run.engine.evaluate(run.server), latest_round=run.state.round)
    summary = run.summary(directory.history())
    directory.finish(summary, run.engine.player.trainer.state_dict(run.server.weights))
    return summary


def _check_feedback(saved: Mapping[str, Any] | None) -> None:
    """Say so where what clients kept from round to round is gone: the model will not be the same bit for bit."""
    if saved is None or not saved["server"]["keeps"]:  # nothing was left out so far
        return
    lost = [client for client, state in saved["clients"].items() if state is None]
    if lost or not saved["clients"]:
        _log.warning(
            "The checkpoint does not hold what these clients had left out of their updates (error feedback). They "
            "resume without it, so that the model will not be the same, bit for bit, as without the interruption: %s.",
            ", ".join(lost) or "all of them",
        )
