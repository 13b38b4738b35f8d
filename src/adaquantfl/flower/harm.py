"""What noise does to an app's loss, for rules that survey it (`CostAware`): its own evaluate handler measures it."""

from __future__ import annotations

import copy
import inspect
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.app.message.message import make_message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from .losses import ANY, loss_in, numbers_in

CONFIG = "evaluate."  # begins the entries of our record that are the evaluate config
LOSS_KEYS = ("eval_loss", "val_loss", "test_loss", "loss", ANY)


def evaluate_settings(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The server's evaluate config as entries of an order's record."""
    return {CONFIG + key: value for key, value in (config or {}).items()}


class OwnEvaluation:
    """The loss of a model by the evaluate handler of the ClientApp that was sent this train message.

    reason: why there is none, once it was asked for.
    """

    def __init__(self, message: Message, plan: ConfigRecord, context: Context) -> None:
        self._message, self._name, self._context = message, str(plan["arrays"]), context
        self._config = {key[len(CONFIG) :]: value for key, value in plan.items() if key.startswith(CONFIG)}
        self.reason = ""

    def __call__(self, arrays: ArrayRecord) -> float | None:
        """None where the app has no loss to tell."""
        loss, reason = self._ask(arrays)
        self.reason = self.reason or reason
        return loss

    def _ask(self, arrays: ArrayRecord) -> tuple[float | None, str]:
        handler = _evaluate_handler()
        if handler is None:
            return None, "The app has no evaluate handler."
        context = copy.copy(self._context)
        context.state = copy.deepcopy(self._context.state)  # what it notes of a model with noise is not to stay
        try:
            with _same_randomness():
                reply = handler(self._asking(arrays), context)
            if reply.has_error():
                return None, f"Its evaluate handler answered with an error: {reply.error.reason}"
            loss = loss_in(numbers_in(reply.content), LOSS_KEYS)
        except Exception as error:  # of the app's own code
            return None, f"Its evaluate handler raised {type(error).__name__}: {error}."
        if loss is None:
            return None, "Its evaluate handler reports no single metric with 'loss' in its name."
        return loss, "" if abs(loss) < np.inf else f"Its evaluate handler reports the loss {loss}."

    def _asking(self, arrays: ArrayRecord) -> Message:
        """The train message as an evaluate message for these arrays."""
        about = copy.copy(self._message.metadata)
        about.message_type = MessageType.EVALUATE
        content = RecordDict({**self._message.content, self._name: arrays})
        for name, config in self._message.content.config_records.items():
            content[name] = ConfigRecord({**config, **self._config})
        return make_message(metadata=about, content=content)


def _evaluate_handler() -> ClientAppCallable | None:
    """The evaluate handler of the app whose call led here. Flower tells a mod only the next function, which trains.

    Not the app itself: its lifespan would begin and end within the one that is open.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not ClientApp.__call__.__code__:
        frame = frame.f_back
    app = frame.f_locals.get("self") if frame is not None else None
    handlers: Mapping[str, ClientAppCallable] = getattr(app, "_registered_funcs", {})
    return handlers.get(f"{MessageType.EVALUATE}.default")


@contextmanager
def _same_randomness() -> Iterator[None]:
    """Leave the random generators that apps use as they were."""
    torch = sys.modules.get("torch")
    python, numpy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(torchs)
