"""How Flower's commands are started: quietly, and so that they end with us."""

from __future__ import annotations

import sys
from collections.abc import Sequence

# No news to Flower's and Ray's makers about who runs what, and no look for newer versions.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

# Linux keeps the request (1 is PR_SET_PDEATHSIG, 15 is SIGTERM) when the process becomes the command. Other systems
# have nothing like it; there a killed parent leaves its children behind.
_BECOME = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 15)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def tethered(command: Sequence[str]) -> list[str]:
    """A command that ends with the process that started it, even where that one is killed: nothing is left behind.

    To be started by the main thread: for Linux, the thread that started it is its parent.
    """
    return [sys.executable, "-c", _BECOME, *command]
