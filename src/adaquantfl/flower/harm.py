"""What noise does to an app's loss, for rules that survey it (`CostAware`): its own evaluate handler measures it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.app.message.message import make_message
from flwr.clientapp import ClientApp

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
        loss, self.reason = self._ask(arrays)
        return loss

    def _ask(self, arrays: ArrayRecord) -> tuple[float | None, str]:
        app = _running_app()
        if app is None:
            return None, "The mod runs without a ClientApp."
        try:
            reply = app(self._asking(arrays), self._context)
        except Exception as error:  # of the app's own code, or of Flower where there is no handler
            return None, f"Its evaluate handler raised {type(error).__name__}: {error}."
        if reply.has_error():
            return None, f"Its evaluate handler answered with an error: {reply.error.reason}"
        loss = loss_in(numbers_in(reply.content), LOSS_KEYS)
        return (
            loss,
            "" if loss is not None else "Its evaluate handler reports no single metric with 'loss' in its name.",
        )

    def _asking(self, arrays: ArrayRecord) -> Message:
        """The train message as an evaluate message for these arrays."""
        about = copy.copy(self._message.metadata)
        about.message_type = MessageType.EVALUATE
        content = RecordDict({**self._message.content, self._name: arrays})
        for name, config in self._message.content.config_records.items():
            content[name] = ConfigRecord({**config, **self._config})
        return make_message(metadata=about, content=content)


def _running_app() -> ClientApp | None:
    """The app whose call led here. Flower tells a mod only the next function, which trains."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not ClientApp.__call__.__code__:
        frame = frame.f_back
    app = frame.f_locals.get("self") if frame is not None else None
    return app if isinstance(app, ClientApp) else None
