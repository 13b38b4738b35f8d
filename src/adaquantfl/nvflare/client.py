"""The clients' filter: an update leaves as one frame, with the coarsest levels whose error is allowed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from ..codecs.coding import compress_within
from ..errors import ConfigError, QuantizeError
from ..protocol.arrays import EXACT_NAMES, Layout, Vector
from ..protocol.feedback import Remainder
from ..quantizers import registry as quantizers
from ..quantizers.streams import stream_key
from ..rules.auto import Auto
from ..rules.late import delay_after, error_of
from .message import NAME, pack
from .tensors import to_arrays


class QuantizeFilter(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
    """Quantizes the update (WEIGHT_DIFF) in a client's result. The server needs a `DequantizeFilter`.

    - `error`: how large the error of a message may be, E||Q(x) - x||^2 / ||x||^2. A larger one takes fewer bytes. None
      is the rule "auto". With feedback it grows with the rounds that the site has taken part in, up to 0.5. Without
      feedback it is 0.25.
    - `quantizer`: as `aq.compress` takes it.
    - `feedback`: the client adds what it left out to its next update. None is what the quantizer is meant for.
    - `exact`: patterns of names of arrays that are not quantized.
    - `seed`: of the random numbers.

    >>> QuantizeFilter().quantizer, QuantizeFilter(error=8.0, quantizer="centroid").error
    ('fitted', 8.0)
    """

    def __init__(
        self,
        error: float | None = None,
        quantizer: str = "fitted",
        feedback: bool | None = None,
        exact: Sequence[str] = EXACT_NAMES,
        seed: int = 0,
    ) -> None:
        super().__init__([DataKind.WEIGHTS, DataKind.WEIGHT_DIFF], [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
        kind = quantizers.find(quantizer)
        if not kind.traits.follows_rule:
            raise ConfigError(f"quantizer = {quantizer!r} has no number of levels to choose: use 'fitted'.")
        keeps = kind.traits.feedback if feedback is None else feedback
        if error is not None and not error > 0:
            raise ConfigError(f"error = {error}: it must be above 0; 1 means as much noise as update.")
        if error is not None and keeps and not error < 1:
            raise ConfigError(
                f"error = {error}: with error feedback it must be below 1, or what is left out would only grow. "
                "Leave it out, or use a quantizer without feedback: quantizer='centroid'."
            )
        # A job's configuration is made from the attributes that are named like the arguments.
        self.error, self.quantizer, self.feedback, self.exact, self.seed = error, quantizer, feedback, exact, seed
        self._kind, self._keeps = kind, keeps
        self._remainders: dict[tuple[str, Layout], Remainder] = {}
        self._rounds: defaultdict[tuple[str, Layout], set[int]] = defaultdict(set)  # that a site has taken part in
        self._told: set[str] = set()

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """The update as bytes; None where it passes as it is."""
        if dxo.data_kind == DataKind.WEIGHTS:
            self._tell(
                fl_ctx,
                "QuantizeFilter: the client returns whole weights, which pass as they are. It quantizes updates: set "
                "params_transfer_type=TransferType.DIFF in the recipe or the ScriptRunner.",
            )
            return None
        if dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM):
            self._tell(fl_ctx, "QuantizeFilter: another filter has packed the update; it passes as it is.")
            return None
        try:
            arrays, types = to_arrays(dxo.data)
            layout = Layout.of(arrays, self.exact)
        except ConfigError as error:
            self._tell(fl_ctx, f"QuantizeFilter: the update passes as it is. {error}")
            return None
        model, site = layout.split(arrays), fl_ctx.get_identity_name()
        counted = _round(shareable, fl_ctx)
        round = len(self._rounds[site, layout]) if counted is None else counted
        try:
            if not layout.is_finite(model):
                raise QuantizeError("The update has NaN or infinite values: training has diverged.")
            frame = self._frame(model.weights, layout, round, site)
        except QuantizeError as error:
            self.log_error(fl_ctx, f"QuantizeFilter: nothing is sent in round {round}. {error}")
            return DXO(dxo.data_kind, {}, dxo.meta)
        packed = DXO(dxo.data_kind, pack(layout, types, model, frame, round), dxo.meta)
        packed.set_meta_prop(MetaKey.PROCESSED_ALGORITHM, NAME)
        return packed

    def _frame(self, update: Vector, layout: Layout, round: int, site: str) -> bytes:
        """The coarsest levels whose error is allowed; with feedback, of the update and what was left out before."""
        before = self._remainders.get((site, layout), Remainder()).before_round(round)
        whole = before.added_to(update) if self._keeps else update
        key, error = stream_key(self.seed, round, _number(site)), self._allowed(site, layout, round)
        frame, left_out = compress_within(whole, error, key, layout.lengths, self._kind, feedback=self._keeps)
        if self._keeps:
            self._remainders[site, layout] = before.after(round, left_out)
        self._rounds[site, layout].add(round)
        return frame

    def _allowed(self, site: str, layout: Layout, round: int) -> float:
        """The error of this round's message. A round that is asked for again counts once."""
        if self.error is not None:
            return self.error
        if not self._keeps:
            return Auto.noise  # as if no other client averaged it out: the filter does not know how many do
        earlier = sum(one < round for one in self._rounds[site, layout])
        return error_of(delay_after(earlier + 1, gain=None))  # a filter sees one client's updates, not the model

    def _tell(self, fl_ctx: FLContext, sentence: str) -> None:
        """Say something once, not in every round."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.log_warning(fl_ctx, sentence)


def _round(shareable: Shareable, fl_ctx: FLContext) -> int | None:
    """The round as the workflow counts it; None where it does not."""
    found = shareable.get_header(AppConstants.CURRENT_ROUND)
    found = fl_ctx.get_prop(AppConstants.CURRENT_ROUND) if found is None else found
    return None if found is None else int(found)


def _number(site: str) -> int:
    """A site's name as the number of a client."""
    return int.from_bytes(hashlib.blake2b(site.encode(), digest_size=7).digest(), "little")
