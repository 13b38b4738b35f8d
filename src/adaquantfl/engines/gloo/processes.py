"""Client processes on this machine, which start and end with a run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Sequence

COMMAND = (sys.executable, "-m", "adaquantfl.engines.gloo")


class ClientProcesses:
    """One process per client. Its command line is `command`, the store's port and the client's number."""

    def __init__(self, clients: int, port: int, command: Sequence[str] = COMMAND) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for client in range(clients):
                self.processes.append(
                    subprocess.Popen(
                        [*command, str(port), str(client)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        process_group=0,  # Ctrl-C is for the server, which decides what it means
                    )
                )
        except BaseException:
            self.close()
            raise

    def ended(self, client: int, timeout: float = 0.0) -> str | None:
        """How a client's process ended; None if it is still alive after `timeout` seconds."""
        try:
            code = self.processes[client].wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, busy: Collection[int] = (), timeout: float = 0.0) -> None:
        """End all processes. timeout: seconds for those to end by themselves that are not busy."""
        deadline = time.monotonic() + timeout
        for client, process in enumerate(self.processes):
            if self.ended(client, 0.0 if client in busy else max(0.0, deadline - time.monotonic())) is None:
                process.kill()
                process.wait()
