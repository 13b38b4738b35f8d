"""A client process on the server's machine: `python -m adaquantfl.engines.gloo PORT CLIENT`.

It ends when its standard input closes: the server's process holds the other end.
"""

from __future__ import annotations

import os
import sys

from ...errors import AdaQuantError
from .client import play, show_log
from .ending import ends_with_stdin
from .rendezvous import open_store

_STORE_SECONDS = 60.0
LOG_VARIABLE = (
    "ADAQUANTFL_CLIENT_LOG"  # set: each client prints a line per round, which mixes with the server's display
)


def main() -> int:
    """Returns the process's exit code."""
    port, client = map(int, sys.argv[1:3])
    ends_with_stdin(client)
    if os.environ.get(LOG_VARIABLE):
        show_log()
    try:
        play(open_store("127.0.0.1", port, _STORE_SECONDS), "127.0.0.1", client)
    except AdaQuantError as error:
        print(f"adaquantfl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
