"""Secrets by which a gloo server knows its clients: a file for each client, in a folder that one variable names.

A file has 64 hexadecimal digits, for its owner alone; docs/how-to/pytorch.md says how to make them.
The server's folder has all files; a client's host needs only the files of its own clients. A client proves who it is
when it joins, signs its replies, and seals every answer. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import os
import struct
from pathlib import Path

from ...errors import ConfigError

VARIABLE = "ADAQUANTFL_SECRETS"  # in the environment of the server and of each client: the folder
SEAL_BYTES = 16  # of HMAC-SHA256 behind an answer
_SECRET_BYTES = 32
_OTHERS_MAY = 0o077  # the bits of a file's mode that let other users of the machine read or write it


def server_secrets(clients: int) -> dict[int, bytes]:
    """Every client's secret; none where the variable is not set."""
    folder = os.environ.get(VARIABLE)
    return {client: _read(_file(Path(folder), client)) for client in range(clients)} if folder else {}


def client_secret(client: int) -> bytes:
    """This client's secret; empty where the variable is not set."""
    folder = os.environ.get(VARIABLE)
    return _read(_file(Path(folder), client)) if folder else b""


def join_proof(secret: bytes, server: str, arrival: int, client: int, address: str) -> str:
    """What a client writes into the store next to its number. It is of no use for another arrival or server."""
    return _hmac(secret, b"join", server.encode(), str(arrival).encode(), str(client).encode(), address.encode()).hex()


def same(one: str, other: str) -> bool:
    """Whether two proofs are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


class Seal:
    """Signs the answers of one connection: each belongs to its place in it."""

    def __init__(self, secret: bytes, connection: str) -> None:
        self._secret, self._connection = secret, connection.encode()

    def of(self, header: bytes, body: bytes) -> bytes:
        """The seal of an answer, whose header has the number of its call."""
        return _hmac(self._secret, b"answer", self._connection, header, body)[:SEAL_BYTES]

    def fits(self, seal: bytes, header: bytes, body: bytes) -> bool:
        """Whether a seal is that of this answer."""
        return hmac.compare_digest(seal, self.of(header, body))


def _hmac(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(struct.pack("<Q", len(part)) + part for part in parts), "sha256")


def _file(folder: Path, client: int) -> Path:
    return folder / f"client{client}.secret"


def _read(file: Path) -> bytes:
    try:
        mode, text = file.stat().st_mode, file.read_text()
    except OSError as error:
        raise ConfigError(
            f"The secret {file} cannot be read: {error.strerror}. The folder that {VARIABLE} names has all clients' "
            "files on the server, and a client's own on its host."
        ) from None
    if os.name == "posix" and mode & _OTHERS_MAY:
        raise ConfigError(f"Other users of this machine can read or change the secret {file}: chmod 600 {file}.")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise ConfigError(f"{file} does not hold a secret: expected {2 * _SECRET_BYTES} hexadecimal digits.")
    return secret
