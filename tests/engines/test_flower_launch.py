"""Runs on Flower, for real: its simulation with Ray, and deployments of a SuperLink and SuperNodes on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import adaquantfl as aq
from adaquantfl.engines.flower import launch as flower_run
from adaquantfl.engines.flower.local_processes import LocalProcesses, free_ports
from adaquantfl.engines.flower.loopback import check_loopback, listening
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.directory import RunDirectory
from adaquantfl.runs.loop import Request, RunState
from support.flower_hosts import Hosts, history, summary
from support.processes import HANG_SECONDS, wait_until

pytestmark = pytest.mark.timeout(4 * HANG_SECONDS)  # Flower starts many processes, each of which imports a lot


def small(**changes: Any) -> Config:
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 3, "loss_samples": 32, "evaluate_every": 2}
    return load_config("demo", {**settings, **changes})


def expected(config: Config, out: Path) -> str:
    """The model that the local engine ends with."""
    return str(Request(out / "local", config).play()["model_sha256"])


@pytest.fixture
def spotless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files and one for a user's home. Both are empty in the end, and no process is left."""
    # Not below tmp_path: Ray keeps sockets there, whose paths have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="aq") as temporary:
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield tmp_path
        left = [path.name for path in Path(temporary).iterdir()]
        assert [name for name in left if not name.startswith("torchinductor")] == []  # PyTorch's, on any engine
        assert {path.name for path in home.iterdir()} <= {".cache", ".config"}  # matplotlib's, on any engine
        assert processes_with(temporary) == {}
    tempfile.tempdir = None


def processes_with(mark: str) -> dict[int, str]:
    """The processes, with their command lines, whose Flower has its home below this folder."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"FLWR_HOME={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def memory_of(pids: Iterable[int]) -> int:
    """Kilobytes that these processes have for themselves or share with each other."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return total


@pytest.mark.slow
def test_a_simulated_run_ends_in_the_same_model_and_leaves_nothing_behind(spotless: Path) -> None:
    config = small()
    seen: list[tuple[int, bool]] = []
    played = flower_run.simulate(
        Request(spotless / "run", config), lambda config, state, line: seen.append((state.round, line is None))
    )
    assert played["engine"] == "flower"
    assert seen == [(0, True), (1, False), (2, False), (3, False)]
    assert played["model_sha256"] == expected(config, spotless)


@pytest.mark.slow
def test_a_simulation_listens_on_loopback_only_and_asks_for_a_token(spotless: Path) -> None:
    found: dict[str, list[str]] = {}
    tokens: set[str] = set()

    def look(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if state.round == 2:  # the clients' workers are there
            for pid, name in processes_with(os.environ["TMPDIR"]).items():
                for address in listening(pid):
                    found.setdefault(str(address), []).append(name.strip())
                with suppress(OSError):  # gone since
                    theirs = Path(f"/proc/{pid}/environ").read_text().split("\0")
                    tokens.update(item for item in theirs if item.startswith("RAY_AUTH_TOKEN="))

    flower_run.simulate(Request(spotless / "run", small(rounds=30)), look)
    assert set(found) == {"127.0.0.1"}, found
    for name in ("gcs_server", "raylet", "server_app", "ray::"):
        assert any(name in one for one in found["127.0.0.1"]), found
    assert len(tokens) == 1, "one token for all of Ray's processes"


START_RAY = """
import os
from adaquantfl.engines.flower.server_app import start_ray
start_ray(1)
import ray
print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], flush=True)
input()
"""
ASK_RAY = """
import sys
from ray._raylet import GcsClient
print("nodes:", len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)))
"""


@pytest.mark.slow
def test_whoever_connects_to_ray_without_the_token_is_refused(tmp_path: Path) -> None:
    """As another user of this machine would: the port is known, and the token is not."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"HOME": str(tmp_path)}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", START_RAY], env=plain, text=True, **piped) as host:  # type: ignore[call-overload]
        address, token = host.stdout.readline().split()
        told = {}
        guests = {
            "with the token": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
            "without": {},
            "with another": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * len(token)},
        }
        for name, changes in guests.items():
            told[name] = subprocess.run(
                [sys.executable, "-c", ASK_RAY, address],
                env=plain | changes, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
            )  # fmt: skip
        host.communicate("\n")
    assert told["with the token"].stdout.strip() == "nodes: 1", told["with the token"].stderr
    for name in ("without", "with another"):
        assert told[name].returncode != 0
        assert "token" in told[name].stderr, told[name].stderr


ROBUST = [
    ("flower", {"step": "median", "method": "8bit", "downlink": "exact", "private": "true"}),
    ("flower", {"step": "krum", "hostile": 1, "clients": 5, "max_update_norm": "1x", "norm_action": "clip"}),
    ("flower-deployment", {"step": "trimmed-mean", "trim": 0.34, "method": "8bit", "downlink": "exact"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "keys"), ROBUST, ids=["median private", "krum clip", "trimmed mean"])
def test_a_command_with_a_robust_step_ends_in_the_same_model_as_on_the_local_engine(
    spotless: Path, engine: str, keys: dict[str, Any]
) -> None:
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 2, "loss_samples": 32, "evaluate_every": 2, **keys}
    changes = [f"--set={key}={value}" for key, value in settings.items()]
    digests = []
    for name in (engine, "local"):
        played = command("run", "demo", *changes, "--engine", name, "--out", str(spotless / name))
        assert played.wait(HANG_SECONDS) == 0, played.communicate()
        digests.append(summary(spotless / name)["model_sha256"])
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("host", "exposed"), [("127.0.0.1", ""), ("::1", ""), ("0.0.0.0", "0.0.0.0"), ("::", "::")])
def test_a_process_that_other_hosts_reach_is_noticed(host: str, exposed: str) -> None:
    family = "AF_INET6" if ":" in host else "AF_INET"
    script = f"import socket as s; x = s.create_server(('{host}', 0), family=s.{family}); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.read(1) != b"1":
            pytest.skip(f"this machine has no {host}")
        assert [str(address) for address in listening(process.pid)] == [host]
        if exposed:
            with pytest.raises(aq.EngineError, match=f"Ray listens on {exposed}, where other hosts can reach it"):
                check_loopback(process.pid)
        else:
            check_loopback(process.pid)
        process.communicate(b"\n")


def command(*arguments: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "adaquantfl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["flower", "flower-deployment"])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_leaves_nothing_behind_and_resumes_to_the_same_model(
    spotless: Path, engine: str, stop: signal.Signals
) -> None:
    config = small(rounds=8, checkpoint_every=100)
    out = spotless / "run"
    settings = [f"--set={key}={getattr(config, key)}" for key in ("model", "clients", "tau", "rounds", "loss_samples")]
    settings += ["--set=evaluate_every=2", "--set=checkpoint_every=100"]
    process = command("run", "demo", *settings, "--engine", engine, "--out", str(out))
    wait_until(lambda: len(history(out)) >= 3, HANG_SECONDS, "three rounds")
    process.send_signal(stop)
    _, told = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    assert f"Stopped. Resume with: adaquantfl run --resume {out} --engine {engine}" in told
    done = len(history(out))
    process = command("run", "--resume", str(out), "--engine", engine)
    _, told = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, told
    assert f"from round {done}" in told, "the rounds before the stop were kept"
    assert summary(out)["model_sha256"] == expected(config, spotless)


@pytest.mark.slow
def test_a_deployed_run_ends_in_the_same_model_and_leaves_nothing_behind(spotless: Path) -> None:
    config = small()
    seen: list[int] = []
    played = flower_run.deploy(Request(spotless / "run", config), lambda config, state, line: seen.append(state.round))
    assert played["engine"] == "flower-deployment"
    assert seen == [0, 1, 2, 3]
    assert played["model_sha256"] == expected(config, spotless)
    again = flower_run.deploy(Request(spotless / "run"))
    assert again["model_sha256"] == played["model_sha256"], "a finished run is not played again"


@pytest.mark.slow
def test_an_error_of_the_server_app_is_the_commands_error(spotless: Path) -> None:
    config = small(tau=100_000, round_timeout=15.0)
    with pytest.raises(aq.EngineError, match=r"(Round 1: 0|Evaluation: \d) of 3 clients answered.*: no answer within"):
        flower_run.simulate(Request(spotless / "run", config))


def server_apps() -> list[int]:
    """The processes in which Flower runs our ServerApp."""
    return [pid for pid, command in processes_with(os.environ["TMPDIR"]).items() if "/flwr-serverapp " in command]


@pytest.mark.slow
def test_a_killed_server_is_reported_and_its_run_resumes_to_the_same_model(spotless: Path) -> None:
    config = small(rounds=6, checkpoint_every=2)
    out = spotless / "run"

    def kill(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if state.round == 3:
            (server,) = server_apps()
            os.kill(server, signal.SIGKILL)

    with pytest.raises(aq.EngineError, match="ended in mid-run"):
        flower_run.deploy(Request(out, config), kill)
    resumed = flower_run.deploy(Request(out))
    assert resumed["model_sha256"] == expected(config, spotless)


@pytest.mark.slow
def test_a_supernode_that_is_killed_and_comes_back_gets_its_client_back(spotless: Path) -> None:
    out = spotless / "run"
    with LocalProcesses() as processes:
        hosts = Hosts(processes, clients=3)
        for client in range(3):
            hosts.node(client)
        settings = "model=mlp clients=3 tau=2 rounds=100000 loss_samples=32 min_clients=2 round_timeout=600"
        hosts.run(preset="demo", set=settings, out=str(out))
        wait_until(lambda: len(history(out)) >= 2, HANG_SECONDS, "two rounds")
        hosts.kill(1)
        wait_until(lambda: any("missing" in line for line in history(out)), HANG_SECONDS, "a round without client 1")
        (line,) = [line for line in history(out) if "missing" in line][:1]
        assert line["clients"] == 2
        assert list(line["missing"]) == ["1"]
        hosts.node(1)
        wait_until(lambda: history(out)[-1]["clients"] == 3, HANG_SECONDS, "a round with all clients again")
        hosts.stop()
        wait_until(lambda: not server_apps(), HANG_SECONDS, "the end of the server app")
    done = len(history(out))
    assert RunDirectory(out).rounds_done == done > 0, "what was finished before `flwr stop` is kept"


@pytest.mark.slow
def test_clients_that_raise_or_lie_cost_only_themselves(spotless: Path) -> None:
    out = spotless / "run"
    with LocalProcesses() as processes:
        hosts = Hosts(processes, clients=3)
        hosts.node(0)
        for client, fault in enumerate(("raises", "corrupts"), start=1):
            hosts.unruly(client, fault)
        settings = "model=mlp clients=3 tau=2 rounds=1 loss_samples=32 min_clients=1 round_timeout=600"
        hosts.run(preset="demo", set=settings, out=str(out))
        wait_until(lambda: len(history(out)) >= 1, HANG_SECONDS, "a round")
    (line,) = history(out)
    assert line["clients"] == 1
    assert "it raised RuntimeError: no data today (unruly_node.py" in line["missing"]["1"]
    assert "checksum" in line["missing"]["2"]


@pytest.mark.slow
def test_200_simulated_clients_20_a_round_need_no_more_memory_from_round_to_round(spotless: Path) -> None:
    few = {"clients": 200, "clients_per_round": 20, "loss": "round", "tau": 1, "batch_size": 8}
    config = small(**few, rounds=100, evaluate_every=1000)
    used: dict[int, int] = {}

    def weigh(config: Config, state: RunState, line: dict[str, Any] | None) -> None:
        if state.round % 10 == 0:
            used[state.round] = memory_of(processes_with(os.environ["TMPDIR"]))

    flower_run.simulate(Request(spotless / "run", config), weigh)
    assert used[100] < 1.03 * used[30], used


@pytest.mark.slow
def test_flowers_own_supernodes_play_the_run_too(spotless: Path) -> None:
    config = small(rounds=1, clients=2)
    with LocalProcesses() as processes:
        hosts = Hosts(processes, clients=2)
        for client, port in enumerate(free_ports(2)):
            hosts.plain(client, port)
        hosts.run(preset="demo", set="model=mlp clients=2 tau=2 rounds=1 loss_samples=32", out=str(spotless / "run"))
        played = summary(spotless / "run")
    assert played["model_sha256"] == expected(config, spotless)
