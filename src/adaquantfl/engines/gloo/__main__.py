"""A client process on the server's machine: `python -m adaquantfl.engines.gloo PORT CLIENT`."""

from __future__ import annotations

import sys

from ...errors import AdaQuantError
from .client import play
from .ending import ends_with_store
from .rendezvous import open_store

_STORE_SECONDS = 60.0


def main() -> int:
    """Returns the process's exit code."""
    host, (port, client) = "127.0.0.1", map(int, sys.argv[1:3])
    try:
        with ends_with_store(host, port, client):
            play(open_store(host, port, _STORE_SECONDS), host, client)
    except AdaQuantError as error:
        print(f"adaquantfl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
