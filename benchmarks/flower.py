"""What Flower adds to a round of the CNN, in seconds and in bytes on the sockets, and where it goes.

Each variant plays the same rounds, with fixed levels and no evaluation in between. A deployment's nodes reach the
SuperLink through a proxy that counts bytes and notes when messages are taken and answered.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from adaquantfl.config import Config, load_config
from adaquantfl.experiments import flower_run
from adaquantfl.experiments.flower_link import Command
from adaquantfl.experiments.flower_processes import Home, free_ports
from adaquantfl.experiments.flower_run import Deployment
from adaquantfl.experiments.runner import Request
from common import record
from proxy import Proxy

VARIANTS = ["local", "simulation", "deployment", "deployment of plain SuperNodes"]
ROUNDS = 6  # the first two warm up: processes compile kernels and load data


class Plain(Deployment):
    """Flower's own SuperNodes, which start a process for every message."""

    def _start_node(self, client: int) -> None:
        self._started[client] = time.monotonic()
        (port,) = free_ports(1)
        call = ["flower-supernode", "--insecure", "--superlink", self.fleet, "--port", str(port)]
        config = f"partition-id={client} num-partitions={self._clients}"
        self._home.start(f"supernode-{client}", [*call, "--node-config", config])


class Rounds:
    """Observes a run: when each round ended, and how many bytes had passed by then."""

    def __init__(self, proxy: Proxy | None = None) -> None:
        self.proxy = proxy
        self.ended: list[tuple[float, int, int, dict[str, Any] | None]] = []

    def __call__(self, config: Config, state: Any, line: dict[str, Any] | None) -> None:
        up, down = (self.proxy.up, self.proxy.down) if self.proxy else (0, 0)
        self.ended.append((time.time(), up, down, line))

    def figures(self, workers: int) -> dict[str, float]:
        """Medians over the rounds after the first two."""
        lines = [line for _, _, _, line in self.ended[3:] if line is not None]
        result = {
            "round_seconds": _median(line["seconds"]["round"] for line in lines),
            "work_seconds": _median(sum(line["seconds"][k] for k in ("train", "encode")) / workers for line in lines),
        }
        if self.proxy:
            pairs = list(zip(self.ended[2:], self.ended[3:], strict=False))
            frames = [after[3]["wire_bytes_up"] - before[3]["wire_bytes_up"] for before, after in pairs]  # type: ignore[index]
            models = [after[3]["wire_bytes_down"] - before[3]["wire_bytes_down"] for before, after in pairs]  # type: ignore[index]
            result |= {
                "frame_bytes_up": _median(frames),
                "socket_bytes_up": _median(after[1] - before[1] for before, after in pairs),
                "model_bytes_down": _median(models),
                "socket_bytes_down": _median(after[2] - before[2] for before, after in pairs),
                **self._breakdown(),
            }
        return result

    def _breakdown(self) -> dict[str, float]:
        """Seconds until a node takes its message, until its answer leaves, and until the round is over."""
        assert self.proxy is not None
        parts: dict[str, list[float]] = {"until_taken": [], "at_the_node": [], "until_added_up": []}
        for (began, *_), (ended, *_rest) in zip(self.ended[2:], self.ended[3:], strict=False):
            by_node: dict[int, dict[str, float]] = {}
            for connection, when, kind in self.proxy.requests:
                if began <= when <= ended:
                    times = by_node.setdefault(connection, {})
                    if kind == "pull-object":
                        times.setdefault("taken", when)
                    if kind == "push-messages":
                        times["answered"] = when
            complete = [times for times in by_node.values() if len(times) == 2]
            if not complete:
                continue
            parts["until_taken"] += [times["taken"] - began for times in complete]
            parts["at_the_node"] += [times["answered"] - times["taken"] for times in complete]
            parts["until_added_up"].append(ended - max(times["answered"] for times in complete))
        return {f"{name}_seconds": _median(values) for name, values in parts.items()}


def _median(values: Any) -> float:
    found = list(values)
    return statistics.median(found) if found else float("nan")


def deployed(kind: type[Deployment], request: Request, config: Config) -> Rounds:
    """Play a run on a deployment behind a proxy."""
    with Home() as home, closing(Command(home.path, request)) as command:
        deployment = kind(home, config.clients)
        host, port = deployment.address.split(":")
        proxy = Proxy((host, int(port)))
        deployment.fleet = proxy.address
        rounds = Rounds(proxy)
        deployment.start(command.environment)
        command.follow(rounds, deployment.check)
        proxy.close()
        return rounds


def measure(name: str, config: Config, out: Path) -> dict[str, float]:
    """One variant's figures."""
    print(f"measuring {name} ...", file=sys.stderr)
    request = Request(out / "run", config)
    if name.startswith("deployment"):
        return deployed(Plain if "plain" in name else Deployment, request, config).figures(2)
    rounds = Rounds()
    request.play(rounds) if name == "local" else flower_run.simulate(request, rounds)
    return rounds.figures(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the record to this JSON file, beside what it holds")
    parser.add_argument("names", nargs="*", default=VARIANTS, help=f"which of: {', '.join(VARIANTS)} (default: all)")
    options = parser.parse_args()
    settings = {"model": "cnn", "clients": 8, "tau": 10, "rounds": ROUNDS, "workers": 2, "evaluate_every": 1000}
    config = load_config("demo", {**settings, "method": "2bit", "loss": "round", "checkpoint_every": 1000})
    there = json.loads(options.out.read_text())["variants"] if options.out and options.out.exists() else {}
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            there[name] = measure(name, config, Path(folder))
        record(options.out, {"settings": {**settings, "method": "2bit"}, "variants": there})


if __name__ == "__main__":
    main()
