"""docs/security.md, step by step: who gets in, and who does not."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adaquantfl.engines.flower.local_processes import LocalProcesses, free_ports
from adaquantfl.errors import EngineError
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.loop import Request
from support.flower_hosts import UNRULY, Hosts, summary
from support.processes import HANG_SECONDS, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * HANG_SECONDS),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")), reason="needs OpenSSL and OpenSSH"
    ),
]


def small(**changes: Any) -> Config:
    settings = {"model": "mlp", "clients": 3, "tau": 2, "rounds": 3, "loss_samples": 32, "evaluate_every": 2}
    return load_config("demo", {**settings, **changes})


PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
CERTIFICATES, KEY = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def bash(script: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["bash", "-euc", script], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates, two clients' keys and a stranger's, made as the page says; and another CA."""
    folder = tmp_path_factory.mktemp("papers")
    bash(CERTIFICATES, folder)
    for name in ("client0", "client1", "stranger"):
        bash(KEY.replace("client0", name), folder)
    bash(CERTIFICATES, folder / "elsewhere")
    return folder


@pytest.fixture(scope="module")
def hosts(papers: Path) -> Iterator[Hosts]:
    """A SuperLink with TLS, for registered nodes."""
    with LocalProcesses() as processes:
        processes.environment["ADAQUANTFL_NODE_KEYS"] = str(papers)
        secure = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
        paths = [str(papers / item) if not item.startswith("--") else item for item in secure]
        hosts = Hosts(processes, 2, [*paths, "--enable-supernode-auth"])
        flower = processes.path / "flwr"
        flower.mkdir(exist_ok=True)
        (flower / "config.toml").write_text(
            f'[superlink.there]\naddress = "{hosts.address}"\nroot-certificates = "{papers}/ca.crt"\n'
        )
        yield hosts


def try_to_join(hosts: Hosts, *options: str) -> str:
    """What a SuperNode that is sent away prints."""
    config = ["--node-config", "partition-id=0 num-partitions=2", "--max-retries", "1"]
    name, port = f"outsider-{secrets.token_hex(4)}", str(*free_ports(1))
    hosts.processes.start(name, ["flower-supernode", "--superlink", hosts.address, "--port", port, *config, *options])
    with pytest.raises(EngineError, match=r"outsider-.* failed"):
        hosts.processes.finish(name, HANG_SECONDS)
    return hosts.processes.printed(name)


def register(hosts: Hosts, key: Path) -> str:
    hosts.processes.start("register", ["flwr", "supernode", "register", str(key), "there"])
    hosts.processes.finish("register", HANG_SECONDS)
    return hosts.processes.last_words("register")


def test_plain_http_is_refused(hosts: Hosts) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.post(
            f"http://{hosts.address}/v1/fleet/register-node", content=b"", timeout=HANG_SECONDS
        ).raise_for_status()
    assert "Server disconnected without sending a response" in try_to_join(hosts, "--insecure")


def test_a_node_without_a_key_does_not_get_in(hosts: Hosts, papers: Path) -> None:
    told = try_to_join(hosts, "--root-certificates", str(papers / "ca.crt"))
    assert "All SuperNodes must be registered" in told


def test_a_node_with_an_unregistered_key_does_not_get_in(hosts: Hosts, papers: Path) -> None:
    secured = ["--root-certificates", str(papers / "ca.crt"), "--auth-supernode-private-key", str(papers / "stranger")]
    assert "Failed to activate SuperNode" in try_to_join(hosts, *secured)


def test_a_node_does_not_talk_to_a_superlink_of_another_ca(hosts: Hosts, papers: Path) -> None:
    told = try_to_join(hosts, "--root-certificates", str(papers / "elsewhere" / "ca.crt"))
    assert "certificate verify failed" in told


def test_registered_nodes_get_in_and_end_in_the_same_model(hosts: Hosts, papers: Path, tmp_path: Path) -> None:
    for client in range(2):
        register(hosts, papers / f"client{client}.pub")
        hosts.node(client, "--root-certificates", str(papers / "ca.crt"), "--key", str(papers / f"client{client}"))
    settings = "model=mlp clients=2 tau=2 rounds=1 loss_samples=32"
    certificates = f'root-certificates = "{papers}/ca.crt"'
    hosts.run(certificates, preset="demo", set=settings, out=str(tmp_path / "run"))
    played = summary(tmp_path / "run")
    here = Request(tmp_path / "local", small(rounds=1, clients=2)).play()
    assert played["model_sha256"] == here["model_sha256"]


def test_whoever_reaches_the_port_can_register_a_key_but_plays_no_client_with_it(
    hosts: Hosts, papers: Path, tmp_path: Path
) -> None:
    """As the page warns: without account authentication, registration takes no credentials."""
    assert "registered successfully" in register(hosts, papers / "stranger.pub")
    before = activated(hosts)
    config = ["--superlink", hosts.address, "--node-config", "partition-id=0 num-partitions=2"]
    secured = ["--root-certificates", str(papers / "ca.crt"), "--auth-supernode-private-key", str(papers / "stranger")]
    hosts.processes.start("stranger", [sys.executable, UNRULY, "raises", *config, *secured])
    wait_until(lambda: activated(hosts) > before, HANG_SECONDS, "the stranger's node is online")
    settings = "model=mlp clients=2 tau=2 rounds=1 loss_samples=32"  # without min_clients: every client must answer
    hosts.run(f'root-certificates = "{papers}/ca.crt"', preset="demo", set=settings, out=str(tmp_path / "run"))
    here = Request(tmp_path / "local", small(rounds=1, clients=2)).play()
    assert summary(tmp_path / "run")["model_sha256"] == here["model_sha256"]


def activated(hosts: Hosts) -> int:
    """How many nodes have come online so far."""
    return hosts.processes.printed("superlink").count("Activated node_id")
