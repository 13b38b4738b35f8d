"""A filter that only looks: the size of every message as NVFlare serializes it, and the loss that came with it."""

from __future__ import annotations

import json
from pathlib import Path

from nvflare.apis.dxo import MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils import fobs


class Sizes(Filter):
    def __init__(self, record: str, spoil: bool = False) -> None:
        super().__init__()
        self.record, self.spoil = record, spoil

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        dxo = from_shareable(shareable)
        peer, name = fl_ctx.get_peer_context().get_identity_name(), fl_ctx.get_identity_name()
        client = peer if "server" in name else name
        entry = {
            "client": client,
            "round": shareable.get_header(AppConstants.CURRENT_ROUND),
            "bytes": len(fobs.dumps(shareable)),
            "loss": (dxo.get_meta_prop(MetaKey.INITIAL_METRICS) or {}).get("loss"),
        }
        with Path(self.record).open("a") as file:
            file.write(json.dumps(entry) + "\n")
        if self.spoil and entry["round"] == 1:
            dxo.data["reply"] = dxo.data["reply"][:-1] + b"?"
            dxo.update_shareable(shareable)
        return shareable
