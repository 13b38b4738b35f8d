"""A Flower deployment on devices of their own: SuperLink and SuperNodes in network namespaces, joined by shaped links.

    python -m evidence.studies.devices        # as root, with iproute2 and openssl; writes evidence/records/devices.json

TLS and node keys are on. In each run a device is killed in the middle of a round and started again later. Every
namespace has one link to the server's, which tbf holds to RATE in both directions; the kernel counts its bytes, TCP and
TLS included. All traffic stays inside the namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flwr

from evidence.pages.marked import RECORDS, ROOT

DEVICES, ROUNDS, LOCAL_STEPS = 10, 12, 20
RATE = "1mbit"  # each device's link, up and down
# The device that is killed, in which round, and the round in which it is started again:
KILLED, KILL_AT, BACK_AT = 3, 4, 8
COLUMNS = ("round", "loss", "accuracy", "kB_up", "kB_down")
SERVER, HUB, BIN = "10.77.0.1", "aqdev-hub", Path(sys.executable).parent
CERTIFICATES = f"""\
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -days 2 -subj '/CN=federation CA' \
  -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -subj /CN=superlink \\
  -keyout server.key -out server.csr
printf 'subjectAltName=IP:{SERVER},IP:127.0.0.1,DNS:localhost\\nauthorityKeyIdentifier=keyid\\n' > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem
"""


def shell(script: str, folder: Path | None = None) -> str:
    done = subprocess.run(["sh", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script}\n{done.stdout}{done.stderr}")
    return done.stdout


def device(number: int) -> str:
    return f"aqdev-{number}"


@contextmanager
def network() -> Iterator[None]:
    """One namespace for the server and one for each device, with a shaped link between them."""
    names = [HUB, *map(device, range(DEVICES))]
    try:
        shell(f"ip netns add {HUB}; ip -n {HUB} link set lo up; ip -n {HUB} link add br0 type bridge")
        shell(f"ip -n {HUB} addr add {SERVER}/24 dev br0; ip -n {HUB} link set br0 up")
        for number, name in enumerate(names[1:]):
            shell(f"""
                ip netns add {name}; ip -n {name} link set lo up
                ip -n {HUB} link add d{number} type veth peer name eth0 netns {name}
                ip -n {HUB} link set d{number} master br0 up
                ip -n {name} addr add 10.77.0.{10 + number}/24 dev eth0; ip -n {name} link set eth0 up
                tc -n {HUB} qdisc add dev d{number} root tbf rate {RATE} burst 16kb latency 2s
                tc -n {name} qdisc add dev eth0 root tbf rate {RATE} burst 16kb latency 2s""")
        yield
    finally:
        for name in names:
            for process in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def counted() -> dict[str, int]:
    """Bytes on all links so far."""
    links = json.loads(shell(f"ip -n {HUB} -s -j link"))
    mine = [link["stats64"] for link in links if re.fullmatch(r"d\d+", link["ifname"])]
    return {"up": sum(one["rx"]["bytes"] for one in mine), "down": sum(one["tx"]["bytes"] for one in mine)}


class Federation:
    """A SuperLink and its SuperNodes, each in its namespace."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0",
                            "FLWR_DISABLE_UPDATE_CHECK": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}  # fmt: skip
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        shell(CERTIFICATES, home)
        for number in range(DEVICES):
            shell(f"ssh-keygen -q -t ecdsa -b 384 -N '' -f client{number}", home)
        (home / "config.toml").write_text(
            f'[superlink.there]\naddress = "{SERVER}:8000"\nroot-certificates = "{home / "ca.crt"}"\n'
        )

    def start(self, where: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.home / f"{where}.log").open("ab")
        return subprocess.Popen(
            ["ip", "netns", "exec", where, *command], cwd=self.home, env=self.environment, stdout=log, stderr=log
        )

    def flwr(self, *arguments: str) -> str:
        command = ["ip", "netns", "exec", HUB, "flwr", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return done.stdout

    def start_server(self) -> None:
        self.start(HUB, "flower-superlink", "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem",
                   "--ssl-keyfile", "server.key", "--enable-supernode-auth", "--host", "0.0.0.0", "--port", "8000",
                   "--disable-runtime-dependency-installation")  # fmt: skip
        self.wait(lambda: "nodes" in self.flwr("supernode", "list", "there", "--format", "json"))
        for number in range(DEVICES):
            self.flwr("supernode", "register", str(self.home / f"client{number}.pub"), "there")

    def start_node(self, number: int) -> None:
        self.nodes[number] = self.start(
            device(number), "flower-supernode", "--superlink", f"{SERVER}:8000", "--root-certificates", "ca.crt",
            "--auth-supernode-private-key", f"client{number}",
            "--node-config", f"partition-id={number} num-partitions={DEVICES}",
        )  # fmt: skip

    def kill(self, number: int) -> None:
        """As a power cut: the SuperNode and the app's process that it started."""
        for process in shell(f"ip netns pids {device(number)}").split():
            os.kill(int(process), signal.SIGKILL)

    def online(self) -> int:
        return self.flwr("supernode", "list", "there", "--format", "json").count('"online"')

    @staticmethod
    def wait(ready: Any, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if ready():
                    return
            except RuntimeError:
                pass
            time.sleep(1)
        raise TimeoutError("It did not become ready.")

    def run(self, rule: str) -> dict[str, Any]:
        """Play one run; a device is killed in it, and started again."""
        self.wait(lambda: self.online() == DEVICES)
        config = f'num-server-rounds={ROUNDS} local-steps={LOCAL_STEPS} rule="{rule}"'
        command = ["ip", "netns", "exec", HUB, "flwr", "run", str(ROOT / "examples/flower"), "there", "--stream",
                   "--run-config", config]  # fmt: skip
        before, began, starts, lines, faults = counted(), time.monotonic(), [], [], {}
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if found := re.search(r"\[ROUND (\d+)/", line):
                    starts.append(round(time.monotonic() - began, 1))
                    if int(found[1]) == KILL_AT:
                        time.sleep(2)  # it has its order, or is training
                        self.kill(KILLED)
                        faults["killed"] = round(time.monotonic() - began, 1)
                    if int(found[1]) == BACK_AT:
                        self.start_node(KILLED)
                        faults["started again"] = round(time.monotonic() - began, 1)
        seconds, after = time.monotonic() - began, counted()
        (self.home / f"{rule}.txt").write_text("".join(lines))
        pattern = r"^round +(\d+) .* loss ([\d.]+)  accuracy ([\d.]+) +([\d.,]+) kB up +([\d.,]+) kB down"
        rounds = [[float(x.replace(",", "")) for x in one] for one in re.findall(pattern, "".join(lines), re.M)]
        assert len(rounds) == ROUNDS, "".join(lines)[-3000:]
        clients = [int(x) for x in re.findall(r"'aq_quantized': (\d+)", "".join(lines))]
        return {
            "seconds": round(seconds, 1), "round_starts": starts, "faults": faults,
            "link_bytes": {way: after[way] - before[way] for way in before}, "clients": clients,
            "rounds": [dict(zip(COLUMNS, one, strict=True)) for one in rounds],
        }  # fmt: skip


def play(rules: list[str], keep: Path | None = None) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="aqdev-"))
    record: dict[str, Any] = {
        "devices": DEVICES, "rounds": ROUNDS, "local_steps": LOCAL_STEPS, "rate": RATE, "killed": KILLED,
        "flwr": flwr.__version__, "cores": os.cpu_count(), "runs": {},
    }  # fmt: skip
    try:
        for rule in rules:
            with network():  # a fresh federation for each
                folder = home / rule
                folder.mkdir()
                federation = Federation(folder)
                federation.start_server()
                for number in range(DEVICES):
                    federation.start_node(number)
                record["runs"][rule] = federation.run(rule)
                print(rule, json.dumps(record["runs"][rule]), flush=True)
    finally:
        if keep:
            shutil.copytree(home, keep, dirs_exist_ok=True)
        shutil.rmtree(home, ignore_errors=True)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", default="auto,fp32")
    parser.add_argument("--logs", type=Path, help="keep the logs in this folder")
    parser.add_argument("--out", type=Path, default=RECORDS / "devices.json")
    options = parser.parse_args()
    record = play(options.rules.split(","), options.logs)
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
