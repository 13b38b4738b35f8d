"""A client process on the server's machine: `python -m adaquantfl.engines.gloo PORT CLIENT`."""

from __future__ import annotations

import sys

from ...errors import AdaQuantError
from .client import play_process


def main() -> int:
    """Returns the process's exit code."""
    try:
        play_process("127.0.0.1", *map(int, sys.argv[1:3]))
    except AdaQuantError as error:
        print(f"adaquantfl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
