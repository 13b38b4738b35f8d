"""A preset as a Flower app: the ServerApp plays the run on the grid that Flower gives it."""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Context, UserConfig
from flwr.serverapp import Grid, ServerApp

from ...errors import ConfigError
from ...report import progress
from ...runs.config import Config, load_config, parse_override
from ...runs.loop import Observer, Request, RunState
from .engine import FlowerEngine
from .launch_link import ServerEnd

_log = logging.getLogger("flwr")  # Flower shows what is logged here, and `flwr log` fetches it


def server_app(link: ServerEnd | None = None, workers: int | None = None) -> ServerApp:
    """A ServerApp that plays what the command asks for, or what Flower's run config says.

    workers: how many simulated clients work side by side; None in a deployment.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        command = link or ServerEnd.connect()
        if command is None:
            play(request_of(context.run_config), grid, _say, workers)
            return
        try:
            command.finish(play(command.request, grid, command.observe, workers, command))
        except Exception as error:
            with suppress(OSError):
                command.fail(error)
            raise

    return app


def play(
    request: Request, grid: Grid, observer: Observer, workers: int | None = None, command: ServerEnd | None = None
) -> dict[str, Any]:
    """Play a run on this grid; returns its summary."""
    stopped = command.stopped if command else lambda: False
    return request.play(observer, connect=lambda config: FlowerEngine(config, grid, workers, stopped))


def request_of(run_config: UserConfig) -> Request:
    """What `flwr run --run-config` asks for: preset, set and out, or resume."""
    changes = dict(parse_override(item) for item in shlex.split(str(run_config.get("set", ""))))
    preset, out, resume = (str(run_config.get(key, "")) for key in ("preset", "out", "resume"))
    if resume:
        return Request(Path(resume), changes=changes)
    if not preset or not out:
        raise ConfigError(
            "The app's run config needs preset and out, or resume: "
            """flwr run . SUPERLINK --run-config 'preset="demo" out="/srv/runs/demo"'."""
        )
    return Request(Path(out), load_config(preset, changes))


def _say(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
    _log.info("round %d of %d: %s", state.round, config.rounds, progress.numbers(state, line))


app = server_app()
