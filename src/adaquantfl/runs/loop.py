"""A run from its configuration to its summary: play rounds, evaluate, write down, go on after an interruption."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..engines.calls import CallEngine
from ..engines.local import LocalEngine
from ..errors import CheckpointError, ConfigError
from ..protocol import server
from ..protocol.messages import Engine
from ..protocol.server import RunState
from ..report import holdings, tracking
from ..training import partitions
from .config import RESUMABLE, Config, load_config
from .directory import RunDirectory

Observer = Callable[[Config, RunState, dict[str, Any] | None], None]  # (config, state, the round's line)
Connect = Callable[[Config], CallEngine]  # an engine with its clients at hand


@dataclass(frozen=True)
class Request:
    """A new run of a configuration into `out`; without one, the run in `out` goes on, with the changes."""

    out: Path
    config: Config | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The task of the user's own that it is about; "" where there is none, or nothing to go on with."""
        file = self.out / "config.toml"
        config = self.config or (load_config(file) if file.is_file() else None)
        return config.task if config else ""

    def play(self, observer: Observer | None = None, connect: Connect = LocalEngine) -> dict[str, Any]:
        """Carry it out; returns the run's summary."""
        if self.config is None:
            return resume(self.out, self.changes, observer, connect)
        return run(self.config, self.out, observer, connect)


def run(config: Config, out: Path, observer: Observer | None = None, connect: Connect = LocalEngine) -> dict[str, Any]:
    """Play a new run into the folder `out`; returns its summary."""
    tracking.check(config)
    directory = RunDirectory(out)
    directory.check_free()
    engine = connect(config)  # before the folder is made: missing data leaves nothing behind
    try:
        counts, classes = engine.task.holdings(), engine.task.classes
        directory.create(config)
        holdings.write(counts, classes, out)
        if classes:
            partitions.draw(counts, classes, out / holdings.PICTURE)
        return _play(config, None, engine, directory, observer)
    finally:
        directory.close()
        engine.close()


def resume(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    observer: Observer | None = None,
    connect: Connect = LocalEngine,
) -> dict[str, Any]:
    """Go on with the run in `out` from its last checkpoint; a finished run gives its summary."""
    changes = changes or {}
    fixed = sorted(set(changes) - RESUMABLE)
    if fixed:
        raise ConfigError(
            f"--set {fixed[0]} would change rounds that are done. When resuming, only "
            f"{', '.join(sorted(RESUMABLE))} can be set; start a new run for the rest."
        )
    directory = RunDirectory(out)
    try:
        config, state = directory.resume(changes)
        done = directory.summary()
        if done is not None and state is not None and server.finished(state, config):
            return done
        tracking.check(config)
        _check_kept(state, config)
        engine = connect(config)  # before anything is changed: its task may be gone, or another
        try:
            engine.restore(state.kept if state else {})
            directory.reopen()
            return _play(config, state, engine, directory, observer)
        finally:
            engine.close()
    finally:
        directory.close()


def _play(
    config: Config, state: RunState | None, engine: Engine, directory: RunDirectory, observer: Observer | None
) -> dict[str, Any]:
    saved = state.round if state else -1
    state = state or server.start(config, engine)
    if observer:
        observer(config, state, None)
    try:
        with tracking.tracked(config, directory.path, state.round) as tell:
            while not server.finished(state, config):
                after, line = server.play_round(state, config, engine)
                after, line = server.evaluate(after, line, config, engine)
                directory.append(line)
                state = replace(after, kept=engine.kept())  # from here on the round counts
                if state.round % config.checkpoint_every == 0:
                    directory.save(state)
                    saved = state.round
                tell(line)
                if observer:
                    observer(config, state, line)
    finally:  # also on Ctrl-C and on a client's error: the finished rounds are kept
        if state.round != saved and state.round > 0:
            directory.save(state)
    if state.latest_round != state.round:  # resumed with a budget that is used up already
        state = replace(state, latest=engine.evaluate(state.model), latest_round=state.round)
    summary = summarise(state, engine)
    directory.finish(summary)
    return summary


def _check_kept(state: RunState | None, config: Config) -> None:
    """Where what clients kept from round to round is gone, the run could not go on to the same model."""
    if config.feedback and state is not None and state.round > 0 and not state.kept:
        raise CheckpointError(
            f"What quantizer {config.quantizer!r} left out of updates so far (error feedback) was in its clients' "
            "processes and is gone with them. Start the run again; the local engine keeps it in its checkpoints."
        )


def _test_losses(state: RunState) -> dict[str, float]:
    ends = {"initial_test_loss": state.initial.test_loss, "final_test_loss": state.latest.test_loss}
    return {name: value for name, value in ends.items() if value is not None}


def summarise(state: RunState, engine: Engine) -> dict[str, Any]:
    """What a run came to."""
    return {
        "engine": engine.name,
        "rounds": state.round,
        **vars(state.ledger),
        "initial_loss": state.initial.loss,
        "initial_accuracy": state.initial.accuracy,
        "final_loss": state.latest.loss,
        "final_accuracy": state.latest.accuracy,
        **_test_losses(state),
        "targets": state.targets,
        "model_sha256": hashlib.sha256(state.model.weights.astype("<f4").tobytes()).hexdigest(),
        "seconds": state.seconds,
        "dimension": engine.federation.dimension,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("adaquantfl", "numpy", "numba", "torch")},
        },
    }
