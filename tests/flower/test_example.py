"""examples/flower and examples/flower_lora, for real: `flwr run` with the simulation engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.processes import HANG_SECONDS, wait_until

APP = Path(__file__).parents[2] / "examples" / "flower"
LORA = APP.with_name("flower_lora")
BIN = Path(sys.executable).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds its processes in /proc"),
]


def ours(home: str) -> list[int]:
    """The processes that carry this FLWR_HOME: the SuperLink, and all that it and Ray started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"FLWR_HOME={home}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass  # it ended, or is somebody else's
    return found


def healthy(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=HANG_SECONDS):
            return True
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def superlink(
    *options: str,
) -> Iterator[tuple[dict[str, str], str]]:
    """A SuperLink of our own, until the end: the environment of all that talk to it, and its port."""
    home, port = tempfile.mkdtemp(prefix="aq-flwr-"), str(free_port())  # a short path: Ray puts sockets into it
    settings = {
        "FLWR_HOME": home,
        "RAY_TMPDIR": home,
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,  # where `flwr run` looks before it starts one and leaves it behind
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    env = {**os.environ, **settings}
    link = start(env, "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", port, *options)
    try:
        wait_until(lambda: link.poll() is not None or healthy(port), HANG_SECONDS, "a SuperLink")
        assert link.poll() is None, "the SuperLink ended"
        yield env, port
    finally:
        link.terminate()
        link.wait(timeout=30)
        deadline = time.monotonic() + 20
        while (left := ours(home)) and time.monotonic() < deadline:
            time.sleep(0.5)
        for process in left:
            os.kill(process, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def start(env: dict[str, str], command: str, *arguments: str) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen([str(BIN / command), *arguments], env=env, stdout=quiet, stderr=quiet)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """That of a SuperLink with the simulation."""
    with superlink("--simulation") as (env, _):
        yield env


def flwr_run(environment: dict[str, str], app: Path = APP, config: str = "num-server-rounds=2 local-steps=8") -> str:
    federation = "num-supernodes=3 client-resources-num-cpus=1"
    return flwr(environment, str(app), "--run-config", config, "--federation-config", federation)


def flwr(environment: dict[str, str], *arguments: str) -> str:
    """What `flwr run` prints."""
    done = subprocess.run(
        [str(BIN / "flwr"), "run", *arguments, "--stream"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(3 * HANG_SECONDS)
def test_the_example_trains_on_few_bytes_and_the_same_way_twice(environment: dict[str, str]) -> None:
    output = flwr_run(environment)
    lines = re.findall(r"^round +(\d+)  s +([\d.]+)  loss ([\d.]+)  accuracy ([\d.]+) +([\d.]+) kB up", output, re.M)
    assert [line[0] for line in lines] == ["1", "2"], output
    assert float(lines[1][2]) < float(lines[0][2])
    assert float(lines[1][3]) > 0.4
    assert float(lines[1][4]) < 3 * 865 / 15  # float32 takes 865 kB a client; early rounds are sent almost whole
    again = flwr_run(environment)
    # Flower draws new node ids, which decide who is which client; a frame leaves out its key where the order has it.
    others = r"'aq_(seconds|message_bytes_up|ratio_up)': [\d.e-]+"
    timeless = [re.sub(others, "", text) for text in (output, again)]
    measured = [re.findall(r"Aggregated MetricRecord: (.*)", text) for text in timeless]
    assert measured[0] == measured[1]
    assert len(measured[0]) == 2


@pytest.mark.timeout(3 * HANG_SECONDS)
@pytest.mark.skipif(find_spec("peft") is None, reason="needs peft and transformers")
def test_adapters_travel_in_few_bytes(environment: dict[str, str]) -> None:
    def run(rule: str) -> list[list[float]]:
        output = flwr_run(environment, LORA, f'num-server-rounds=3 local-steps=4 rule="{rule}"')
        lines = re.findall(r"^round +\d+ .* test loss ([\d.]+) +([\d.,]+) kB up", output, re.M)
        assert len(lines) == 3, output
        return [[float(number.replace(",", "")) for number in line] for line in lines]

    ours, plain = run("auto"), run("fp32")
    assert ours[-1][0] < 4.5, "ln 96 is 4.56"
    assert abs(ours[-1][0] / plain[-1][0] - 1) < 0.02
    assert plain[-1][1] > 3 * 32_768 * 4 / 1000, "kB of three clients"
    assert 10 * ours[-1][1] < plain[-1][1]


@pytest.mark.timeout(3 * HANG_SECONDS)
def test_the_example_runs_on_a_superlink_with_supernodes() -> None:
    """As docs/flower.md says it."""
    with superlink("--disable-runtime-dependency-installation") as (env, port):
        address = f"127.0.0.1:{port}"
        Path(env["FLWR_HOME"], "config.toml").write_text(f'[superlink.mine]\naddress = "{address}"\ninsecure = true\n')
        for number in range(2):
            node = ("--insecure", "--superlink", address, "--port", str(free_port()))
            start(env, "flower-supernode", *node, "--node-config", f"partition-id={number} num-partitions=2")
        config = 'num-server-rounds=3 local-steps=4 rule="adaquant"'
        output = flwr(env, str(APP), "mine", "--run-config", config)
    pattern = r"^round +\d+  s +\d+  loss [\d.]+  accuracy [\d.]+ +([\d.]+) kB up +([\d,.]+) kB down"
    sizes = re.findall(pattern, output, re.M)
    assert len(sizes) == 3, output
    up, down = ([float(size[way].replace(",", "")) for size in sizes] for way in (0, 1))
    assert max(up) < 0.02 * 2 * 865, "kB; float32 takes 865 for each client"
    assert down[0] > 2 * 865 > 20 * down[2], "from the second round on only what has changed"
