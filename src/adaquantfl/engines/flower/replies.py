"""What Flower reports in place of a reply, in sentences."""

from __future__ import annotations

from flwr.app import Error
from flwr.common.constant import ErrorCode

from ..calls import Failure

_LONGEST = 500  # characters of a reason
_SENTENCES = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its ClientApp cannot be loaded: is adaquantfl[train,flower] installed there?",
    ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time: Flower gave the message up.",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no answer in time: Flower gave the message up.",
    ErrorCode.NODE_UNAVAILABLE: "its SuperNode is gone: it gave no sign of life for a minute.",
    ErrorCode.CLIENT_APP_CRASHED: "its ClientApp ended in mid-round; out of memory is the usual cause.",
}


def failure_of(error: Error) -> Failure:
    """Why there is no reply."""
    told = f"Flower reports error {error.code}: {printable(error.reason or 'no reason given')}"
    return Failure(_SENTENCES.get(error.code, told))


def printable(text: str) -> str:
    """What another host says, fit for a terminal and a history.

    >>> printable("no data\\x1b[2J today")
    'no data [2J today'
    """
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST]).strip()
