"""A preset as a Flower app: the ServerApp plays the run on the grid that Flower gives it.

`python -m adaquantfl.engines.flower.server_app CLIENTS WORKERS` is the process of a simulated run. It has Flower's
simulation engine, and Ray under it, for as long as one run takes.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context, UserConfig
from flwr.serverapp import Grid, ServerApp

from ...errors import ConfigError, EngineError
from ...report import progress
from ...runs.config import Config, load_config, parse_override
from ...runs.loop import Request, RunState
from .engine import FlowerEngine
from .launch_link import ServerEnd
from .loopback import check_loopback, ray_environment

_RAY_ATTEMPTS = 3  # at starting Ray, which gives its own processes 30 s: too few on a busy machine
_log = logging.getLogger("flwr")  # Flower shows what is logged here, and `flwr log` fetches it


def server_app(command: ServerEnd | None = None, workers: int | None = None) -> ServerApp:
    """A ServerApp that plays what the command asks for, or what Flower's run config says.

    workers: how many simulated clients work side by side; None in a deployment.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        engine = partial(FlowerEngine, grid=grid, workers=workers)
        link = command or ServerEnd.connect()
        if link is None:
            request_of(context.run_config).play(_say, engine)
            return
        try:
            link.finish(link.request.play(link.observe, partial(engine, stopped=link.stopped)))
        except Exception as error:
            link.fail(error)
            raise

    return app


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


def simulate(clients: int, workers: int) -> None:
    """Play what the command asks for with `clients` nodes, `workers` of them at a time."""
    from flwr.simulation import run_simulation

    from .client import app as client_app

    link = ServerEnd()
    try:
        start_ray(workers)
        one_each = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server_app(link, workers), client_app, clients, backend_config=one_each)  # type: ignore[arg-type]
    except Exception as error:
        link.fail(error)
        os._exit(1)  # Flower's threads would wait for nodes that never come


def start_ray(workers: int) -> None:
    """Ray on this machine's loopback, with nothing but what Flower needs. EngineError where it listens elsewhere."""
    os.environ.update(ray_environment())
    import ray

    for attempt in range(1, _RAY_ATTEMPTS + 1):
        try:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
            break
        except Exception as error:
            ray.shutdown()
            if attempt == _RAY_ATTEMPTS:
                raise EngineError(f"Ray does not start on this machine: {error}") from error
    check_loopback(os.getpid())


def _say(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
    _log.info("round %d of %d: %s", state.round, config.rounds, progress.numbers(state, line))


app = server_app()


if __name__ == "__main__":
    simulate(int(sys.argv[1]), int(sys.argv[2]))
