"""Ray on this machine only: what keeps it on the loopback interface, and the check that it is there.

Ray replaces a node address of 127.0.0.1 by an address that other hosts reach, and its servers then listen on every
interface. The variable below, named after the systems where it is the default, keeps the loopback address. Ray runs
code of any process that connects, so it also gets a token: another user of this machine cannot connect either.
"""

from __future__ import annotations

import ipaddress
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from ...errors import EngineError

_LISTENING = "0A"  # a state in /proc/net/tcp


def ray_environment() -> dict[str, str]:
    """For the process that starts Ray; those that Ray starts inherit it. It must be set before Ray is imported."""
    token = secrets.token_hex(32)
    return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def check_loopback(pid: int) -> None:
    """EngineError where this process, or one that it started, accepts connections from other hosts."""
    if exposed := sorted({address for address in listening(pid) if not address.is_loopback}, key=str):
        raise EngineError(
            f"Ray listens on {', '.join(map(str, exposed))}, where other hosts can reach it, so that the run does not "
            "start. Use --engine local or flower-deployment, or the version of Ray in constraints.txt."
        )


def listening(pid: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses on which a process and its descendants listen; empty where the system has no /proc."""
    inodes = {inode for process in _family(pid) for inode in _sockets(process)}
    found: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[9] in inodes:
                    found.append(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes an address as 32-bit numbers in the order of this machine's bytes."""
    data = b"".join(int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8))
    address = ipaddress.ip_address(data)
    return getattr(address, "ipv4_mapped", None) or address


def _family(pid: int) -> set[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone since
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    family, new = set[int](), [pid]
    while new:
        family.add(one := new.pop())
        new += [child for child in children.get(one, []) if child not in family]
    return family


def _sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    inodes = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(descriptor.readlink()).partition(":")
                if kind == "socket":
                    inodes.add(inode.strip("[]"))
    return inodes
