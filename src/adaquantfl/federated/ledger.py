"""What has been sent: the paper's bits beside the bytes of the real frames. Part of the run's state, not of a log."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..codecs.raw import frame_size
from ..theory import paper_bits
from .messages import Federation, Plan, Reply


@dataclass(frozen=True)
class Ledger:
    """Totals since the start.

    paper_bits: one client's uplink by the paper's formula (its B). Bytes are sums over clients: wire bytes are all that
    is sent (frames, losses, plans), payload bytes only the frames' bodies.
    """

    paper_bits: int = 0
    wire_bytes_up: int = 0
    wire_bytes_down: int = 0
    payload_bytes_up: int = 0
    payload_bytes_down: int = 0

    def after_model_sent(self, federation: Federation) -> Ledger:
        """Every client has received the plan, and model and buffers in float32."""
        clients, d, buffers = len(federation.samples), federation.dimension, len(federation.model.buffers)
        each = frame_size(d) + (frame_size(buffers) if buffers else 0) + Plan.BYTES
        return replace(
            self,
            wire_bytes_down=self.wire_bytes_down + clients * each,
            payload_bytes_down=self.payload_bytes_down + clients * 4 * (d + buffers),
        )

    def after_reply(self, reply: Reply) -> Ledger:
        """One client's reply has arrived."""
        return replace(
            self,
            wire_bytes_up=self.wire_bytes_up + reply.wire_bytes,
            payload_bytes_up=self.payload_bytes_up + reply.payload_bytes,
        )

    def after_refused(self, reply: Reply) -> Ledger:
        """A reply has arrived that cannot be used; its bytes were sent all the same."""
        return replace(self, wire_bytes_up=self.wire_bytes_up + reply.wire_bytes)

    def after_round(self, dimension: int, s: int | None, scales: int) -> Ledger:
        """Every client has sent C_s bits (eq. 6), or 32 an element without quantization."""
        bits = 32 * dimension if s is None else paper_bits(dimension, s, scales)
        return replace(self, paper_bits=self.paper_bits + bits)

    def after_losses(self, clients: int) -> Ledger:
        """Every client has sent f_i(w_k), a float32, for the rule."""
        return replace(self, wire_bytes_up=self.wire_bytes_up + 4 * clients)
