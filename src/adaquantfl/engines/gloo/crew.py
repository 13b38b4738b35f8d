"""Client processes on this machine, started with a run and gone with it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Collection, Sequence

COMMAND = (sys.executable, "-m", "adaquantfl.engines.gloo")


class Crew:
    """A process for each client. `command`, the store's port and the client's number make its command line."""

    def __init__(self, clients: int, port: int, command: Sequence[str] = COMMAND) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            for client in range(clients):
                self.processes.append(
                    subprocess.Popen(
                        [*command, str(port), str(client)],
                        stdin=subprocess.PIPE,  # it ends when this process does, however it ends: a client notices
                        stdout=subprocess.DEVNULL,
                        process_group=0,  # Ctrl-C is for the server, which decides what it means
                    )
                )
        except BaseException:
            self.close()
            raise

    def ended(self, client: int, wait: float = 0.0) -> str | None:
        """How a client's process ended, in words; None if it lives. wait: seconds that it may take to end."""
        try:
            code = self.processes[client].wait(wait)
        except subprocess.TimeoutExpired:
            return None
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, busy: Collection[int] = (), patience: float = 0.0) -> None:
        """End them all. patience: seconds for those that are ending by themselves, unlike the busy ones."""
        deadline = time.monotonic() + patience
        for client, process in enumerate(self.processes):
            if self.ended(client, 0.0 if client in busy else max(0.0, deadline - time.monotonic())) is None:
                process.kill()
                process.wait()
            assert process.stdin is not None
            process.stdin.close()
