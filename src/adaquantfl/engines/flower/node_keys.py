"""Which node may play which client: the one whose key the server's administrator has for it.

The SuperLink tells the server app every node's public key, and with node authentication it has checked it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ...errors import ConfigError, EngineError

VARIABLE = "ADAQUANTFL_NODE_KEYS"  # in the SuperLink's environment: the folder with client0.pub, client1.pub, ...


def client_keys(clients: int) -> dict[int, bytes]:
    """Client -> the public key of its node; empty where the variable is not set, so that any node may play it."""
    folder = os.environ.get(VARIABLE)
    return {client: _read(Path(folder) / f"client{client}.pub") for client in range(clients)} if folder else {}


def check_key(keys: Mapping[int, bytes], client: int, key: bytes) -> None:
    """EngineError where a node with this public key may not play the client."""
    if keys and (not key or _canonical(key) != keys[client]):
        raise EngineError(f"It says that it is client {client}, but has not the key of that client's node.")


def _read(file: Path) -> bytes:
    try:
        return _der(serialization.load_ssh_public_key(file.read_bytes()))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"The public key {file} cannot be read: {reason}. {VARIABLE} names a folder with the public key of every "
            "client's node, as 'flwr supernode register' takes it."
        ) from None


def _canonical(key: bytes) -> bytes:
    """The key that a SuperLink reports (PEM), in the form of ours; empty where it is none."""
    try:
        return _der(serialization.load_pem_public_key(key))
    except ValueError:
        return b""


def _der(key: object) -> bytes:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("it is not an elliptic-curve key")
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
