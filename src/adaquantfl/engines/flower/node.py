"""`adaquantfl flower node`: Flower's SuperNode, with a resident client where this version of Flower allows it."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from .local_processes import QUIET, free_ports, tethered

POLL_SECONDS = 0.5  # between the SuperNode's questions for messages
_log = logging.getLogger("flwr")


def main(arguments: Sequence[str], poll: float = POLL_SECONDS) -> int:
    """Run a SuperNode with these arguments, which are those of `flower-supernode`; returns its exit code.

    poll: seconds between its questions for messages. Choose more where hundreds of nodes share a SuperLink.
    """
    serve = _resident()
    (port,) = free_ports(1)
    call = [sys.executable, "-m", "adaquantfl.engines.flower.polling", str(poll)]
    call += ["--isolation", "process" if serve else "subprocess", "--host", "127.0.0.1", "--port", str(port)]
    supernode = subprocess.Popen(tethered([*call, *arguments]), env={**QUIET, **os.environ})
    try:
        if serve is not None:
            serve(f"127.0.0.1:{port}", lambda: supernode.poll() is None)
        supernode.wait()
    except KeyboardInterrupt:
        pass
    finally:
        supernode.terminate()
        try:
            supernode.wait(timeout=10)
        except subprocess.TimeoutExpired:
            supernode.kill()
    return supernode.wait()


def _resident() -> Callable[[str, Callable[[], bool]], None] | None:
    """What answers all messages in this process; None where Flower is to start a process per message."""
    importlib.import_module("flwr")  # where it is missing, the command names the extra
    importlib.import_module("torch")
    try:
        from .resident import serve
    except (ImportError, AttributeError) as error:  # another version of Flower has other private names
        _log.warning("This version of Flower takes no resident client: it starts a process per message. (%s)", error)
        return None
    return serve
