"""The server's filter: frames become arrays again before the workflow sees them; bad ones are dropped."""

from __future__ import annotations

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from ..errors import reason_of
from .message import NAME, unpack

MOST_ELEMENTS = 2**28  # 1 GB of float32


class DequantizeFilter(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
    """Decodes the updates of clients that have a `QuantizeFilter`; results of other clients pass as they are.

    A frame that is damaged, not finite or too large is refused with a sentence that names the client. Its result is
    then empty, which FedAvg skips. most_elements: how many a client's update may have.

    >>> DequantizeFilter().most_elements
    268435456
    """

    def __init__(self, most_elements: int = MOST_ELEMENTS) -> None:
        super().__init__([DataKind.WEIGHT_DIFF], [DataKind.WEIGHT_DIFF])
        self.most_elements = most_elements

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """The update's arrays; None where the client did not quantize it."""
        if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM) != NAME:
            return None
        dxo.remove_meta_props([MetaKey.PROCESSED_ALGORITHM])
        try:
            return DXO(dxo.data_kind, unpack(dxo.data, self.most_elements), dxo.meta)
        except Exception as error:  # an error in a filter would end the job: no client may cause one
            self.log_error(fl_ctx, f"DequantizeFilter: the update of {_client(fl_ctx)} is dropped. {reason_of(error)}")
            return DXO(dxo.data_kind, {}, dxo.meta)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Keep the model in a round without a single update: FedAvg would take the empty mean for whole weights."""
        if event_type != AppEventType.AFTER_AGGREGATION:
            return
        mean = fl_ctx.get_prop(AppConstants.AGGREGATION_RESULT)
        if isinstance(mean, FLModel) and not mean.params and mean.params_type == ParamsType.FULL:
            self.log_error(fl_ctx, "DequantizeFilter: no update could be used in this round; the model stays as it is.")
            mean.params_type = ParamsType.DIFF


def _client(fl_ctx: FLContext) -> str:
    peer = fl_ctx.get_peer_context()
    return str(peer.get_identity_name()) if peer else "an unknown client"
