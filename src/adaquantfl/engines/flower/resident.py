"""The resident client of a SuperNode: one process answers all its messages, and runs only what is installed here.

Flower's own SuperNode starts a new process for every message. That process loads PyTorch, the data and the model again,
and runs the code that the message's app brings along. All private names of Flower that we need are in this file. Where
a version of Flower lacks one, importing this file fails, and node.py uses Flower's own process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
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

from ...errors import reason_of
from . import client

_TASK_POLL_SECONDS = 0.1  # between our questions for work; the SuperNode is on this host
_OBJECT_POLL_SECONDS, _OBJECT_WITHIN_SECONDS = 0.02, 60.0  # for a part of a message that is still on its way
_log = logging.getLogger("flwr")


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
            time.sleep(_TASK_POLL_SECONDS)


def runtime_client(address: str, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
    """A connection to the API by which Flower hands out work; every call of it has a limit."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    return RetryingClient.from_server_address(address, True, None, [version, *interceptors])


class RetryingClient(RuntimeHttpClient):
    """Asks again for what is on its way: a SuperNode hands out a message before it has all of it.

    Flower's own client would wait a second before it asks again.
    """

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:
        deadline = time.monotonic() + _OBJECT_WITHIN_SECONDS
        response = super().PullObject(request)
        while response.object_found and not response.object_available and time.monotonic() < deadline:
            time.sleep(_OBJECT_POLL_SECONDS)
            response = super().PullObject(request)
        return response


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
