"""The Flower examples, run as their READMEs say: evidence/records/flower-example.json and flower-lora.json.

    python -m evidence.studies.flower_examples          # both, a few minutes; the second needs peft and transformers
    python -m evidence.studies.flower_examples flower   # only examples/flower

Every run is `flwr run` with Flower's simulation on a SuperLink of its own, which ends with the study.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from evidence.pages.marked import RECORDS, ROOT

BIN = Path(sys.executable).parent
FEDERATION = "num-supernodes=4"


@dataclass(frozen=True)
class Example:
    """An app, the rules to run it with, its run's settings, and what it prints of a round."""

    record: str
    rules: tuple[str, ...]
    settings: str
    packages: tuple[str, ...]
    columns: tuple[str, ...]
    line: re.Pattern[str]

    def rounds(self, output: str) -> list[dict[str, float | None]]:
        """Return what the app printed of each round; "-" is None.

        >>> EXAMPLES["flower_lora"].rounds("round   1  train loss 4.1  test loss 4.0      34.5 kB up   1,394.2 kB down")
        [{'round': 1, 'train_loss': 4.1, 'test_loss': 4.0, 'kB_up': 34.5, 'kB_down': 1394.2}]
        """
        found = []
        for number, *values in self.line.findall(output):
            numbers = [None if value == "-" else float(value.replace(",", "")) for value in values]
            found.append({"round": int(number), **dict(zip(self.columns, numbers, strict=True))})
        return found


_TRAFFIC = r" +([\d,.]+) kB up +([\d,.]+) kB down"
EXAMPLES = {
    "flower": Example(
        "flower-example",
        ("auto", "adaquant", "fp32"),
        "num-server-rounds=30",
        ("flwr", "torch"),
        ("s", "loss", "accuracy", "kB_up", "kB_down"),
        re.compile(r"^round +(\d+)  s +([\d.-]+)  loss ([\d.]+)  accuracy ([\d.]+)" + _TRAFFIC, re.MULTILINE),
    ),
    "flower_lora": Example(
        "flower-lora",
        ("auto", "fp32"),
        "",
        ("flwr", "peft", "transformers", "torch"),
        ("train_loss", "test_loss", "kB_up", "kB_down"),
        re.compile(r"^round +(\d+)  train loss ([\d.]+)  test loss ([\d.]+)" + _TRAFFIC, re.MULTILINE),
    ),
}


@contextmanager
def superlink() -> Iterator[dict[str, str]]:
    """Yield the environment in which `flwr run` finds a SuperLink of ours, which ends with everything it started."""
    home = tempfile.mkdtemp(prefix="aq-flwr-")  # short: Ray puts sockets into it
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {
        **os.environ,
        "FLWR_HOME": home,
        "RAY_TMPDIR": home,
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(BIN / "flower-superlink"), "--insecure", "--simulation", "--host", "127.0.0.1", "--port", port]
    quiet = subprocess.DEVNULL
    link = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        while link.poll() is None and not _listens(int(port)):
            time.sleep(0.2)
        if link.poll() is not None:
            raise RuntimeError("flower-superlink ended before it listened.")
        yield environment
    finally:
        os.killpg(link.pid, signal.SIGTERM)
        link.wait()
        shutil.rmtree(home, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(name: str, environment: dict[str, str]) -> None:
    """Run an example with each of its rules, and write the record."""
    example, runs = EXAMPLES[name], {}
    app = ROOT / "examples" / name
    for rule in example.rules:
        settings = f'{example.settings} rule="{rule}"'.strip()
        command = ["flwr", "run", str(app), "--stream", "--federation-config", FEDERATION, "--run-config", settings]
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]], env=environment, capture_output=True, text=True, check=False
        )
        runs[rule] = example.rounds(done.stdout)
        if done.returncode or not runs[rule]:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        print(name, rule, runs[rule][-1], flush=True)
    versions = {package: version(package) for package in example.packages}
    found = {"command": "python -m evidence.studies.flower_examples", "versions": versions, "runs": runs}
    (RECORDS / f"{example.record}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", default=list(EXAMPLES), help=f"of: {', '.join(EXAMPLES)}")
    options = parser.parse_args()
    if unknown := [name for name in options.examples if name not in EXAMPLES]:
        parser.error(f"no example {unknown[0]!r}; there are {', '.join(EXAMPLES)}.")
    with superlink() as environment:
        for name in options.examples:
            run(name, environment)


if __name__ == "__main__":
    main()
