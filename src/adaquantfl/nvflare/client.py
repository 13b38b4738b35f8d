"""The clients' filter: it opens the server's orders, and sends updates as replies."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from .. import checkpoint
from ..errors import AdaQuantError, CheckpointError, ConfigError
from ..protocol.bfloat16 import widened
from ..protocol.client import Client
from . import message
from .message import arrives, is_ours, place

_FOLDER = "adaquantfl"  # in a job's folder: the model that the site holds, for a process that starts again


class _End:
    """A site's end of the conversation."""

    client: Client | None = None
    training = False  # whether an order is open


_ENDS: dict[tuple[str, str], _End] = {}


class ClientFilter(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
    """Opens the server's orders, and quantizes what the client has trained. Add it to a client's input and output.

    It has no settings: the server decides. Updates (WEIGHT_DIFF) and whole weights travel alike.
    """

    def __init__(self) -> None:
        super().__init__([DataKind.WEIGHTS, DataKind.WEIGHT_DIFF], [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """The model to train from, or the reply; None where nothing is to be done."""
        end = _ENDS.setdefault(place(fl_ctx), _End())
        if arrives(fl_ctx):
            end.training = is_ours(dxo)
            return self._opened(end, dxo, fl_ctx) if end.training else None
        if end.client is None or not end.training:  # the server sent a plain model
            return None
        end.training = False
        return self._reply(end.client, dxo, fl_ctx)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.END_RUN:
            _ENDS.pop(place(fl_ctx), None)

    def _opened(self, end: _End, dxo: DXO, fl_ctx: FLContext) -> DXO:
        """The model that an order leads to."""
        if end.client is None:  # perhaps another process of the site held a model
            end.client, folder = Client(0), _folder(fl_ctx)
            with suppress(CheckpointError):  # damaged: the server sends the whole model once it hears of it
                if folder is not None and (tree := checkpoint.load(folder)):
                    end.client = Client.restore(tree)
        weights = end.client.open(message.entry(dxo, message.ORDER))
        return message.unpacked(dxo, message.to_values(dict(weights), bool(dxo.data.get(message.TENSORS))))

    def _reply(self, client: Client, dxo: DXO, fl_ctx: FLContext) -> DXO | None:
        """The update as a reply; None where it cannot be quantized."""
        held, loss = client.held, (dxo.get_meta_prop(MetaKey.INITIAL_METRICS) or {}).get("train_loss")
        steps = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        try:
            arrays, _ = message.to_arrays(dxo.data)
            if dxo.data_kind == DataKind.WEIGHT_DIFF:
                given = dict(held.layout.join(held.model))
                arrays = {name: widened(given[name]) + widened(array) for name, array in arrays.items()}
            reply = client.reply(
                arrays,
                loss=float(loss) if isinstance(loss, int | float) and not loss <= 0 else 0.0,  # NaN says: diverged
                examples=int(steps) if isinstance(steps, int | float) and 1 <= steps < 2**32 else 1,
            )
        except (ConfigError, KeyError) as error:
            self.log_warning(fl_ctx, f"ClientFilter: the result passes as it is. {error}")
            return None
        if (folder := _folder(fl_ctx)) is not None:
            try:
                checkpoint.save(client.state(), folder)
            except (AdaQuantError, OSError) as error:
                self.log_warning(fl_ctx, f"ClientFilter: a process that starts again will not have the model. {error}")
        return message.packed(dxo, {message.REPLY: reply})


def _folder(fl_ctx: FLContext) -> Path | None:
    """Where a site keeps its model; None without an engine."""
    engine = fl_ctx.get_engine()
    if engine is None:
        return None
    run = engine.get_workspace().get_run_dir(fl_ctx.get_job_id())
    return Path(run) / _FOLDER / str(fl_ctx.get_identity_name())
