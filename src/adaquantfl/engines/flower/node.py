"""A SuperNode with a resident client: `adaquantfl flower node` takes what `flower-supernode` takes.

Flower's own SuperNode starts a new process for every message, which loads PyTorch, the data and the model anew, and
runs the code that the message's app brings along. Here one process keeps them, and runs only what is installed here.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from ...protocol.quorum import reason_of
from . import client
from .processes import QUIET, tethered

POLL = 0.5  # seconds between the SuperNode's questions for messages
_ASK_EVERY = 0.1  # seconds between our questions for work; the SuperNode is on this host
_LOOK_EVERY, _ON_ITS_WAY = 0.02, 60.0  # seconds between looks for a part of a message, and until we leave it to Flower
_log = logging.getLogger("flwr")


def main(arguments: Sequence[str], poll: float = POLL) -> int:
    """Run a SuperNode with these arguments and be its client until it ends; returns its exit code.

    poll: seconds between its questions for messages. Choose more where hundreds of nodes share a SuperLink.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    call = [sys.executable, "-m", "adaquantfl.engines.flower.supernode", str(poll)]
    call += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(port), *arguments]
    supernode = subprocess.Popen(tethered(call), env={**QUIET, **os.environ})
    try:
        serve(f"127.0.0.1:{port}", lambda: supernode.poll() is None)
    except KeyboardInterrupt:
        pass
    finally:
        supernode.terminate()
        try:
            supernode.wait(timeout=10)
        except subprocess.TimeoutExpired:
            supernode.kill()
    return supernode.wait()


def serve(address: str, alive: Callable[[], bool]) -> None:
    """Carry out the tasks of the SuperNode at this address for as long as it lives."""
    client.resident = True
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    with runtime_client(address) as superexec:
        while alive():
            with suppress(httpx.HTTPError):  # it is just starting, or just ending
                if token := superexec.AcquireTask(request).token:
                    _carry_out(address, token)
                    continue
            time.sleep(_ASK_EVERY)


def _carry_out(address: str, token: str) -> None:
    """Fetch a task's message, answer it, and say that the task is done."""
    with runtime_client(address, RuntimeTokenHttpInterceptor(token)) as runtime:

        def beat() -> bool:
            with suppress(httpx.HTTPError):
                runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            return True

        heart = HeartbeatSender(beat)
        heart.start()
        try:
            message, context, _, _ = pull_task_input(runtime)
            try:
                reply = client.app(message, context)
            except Exception as error:  # a message of another app, or of another version of this one
                _log.exception("the message cannot be answered")
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason_of(error)), reply_to=message)
            push_message(runtime, reply, context)
            push_task_output(runtime, context, SubStatus.COMPLETED, "")
        finally:
            heart.stop()


def runtime_client(address: str, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
    """A connection to the API by which Flower hands out work; without retries, so that no call waits for ever."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    return _Patient.from_server_address(address, True, None, [version, *interceptors])


class _Patient(RuntimeHttpClient):
    """Waits for what is on its way: a SuperNode hands out a message before it has all of it, and Flower would nap."""

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:
        deadline = time.monotonic() + _ON_ITS_WAY
        response = super().PullObject(request)
        while response.object_found and not response.object_available and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
            response = super().PullObject(request)
        return response


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
