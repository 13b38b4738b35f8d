"""What has been sent: the paper's bits next to the bytes of the real messages. Part of the state, not of a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..theory import paper_bits


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

    def after_model_sent(self, wire: int, payload: int) -> Ledger:
        """The round's clients have received their orders, with what leads to the model: these bytes in total."""
        return replace(
            self, wire_bytes_down=self.wire_bytes_down + wire, payload_bytes_down=self.payload_bytes_down + payload
        )

    def after_reply(self, wire: int, payload: int) -> Ledger:
        """One client's reply has arrived; payload is 0 for one that cannot be used: it was sent all the same."""
        return replace(self, wire_bytes_up=self.wire_bytes_up + wire, payload_bytes_up=self.payload_bytes_up + payload)

    def after_round(self, dimension: int, levels: Iterable[int | None], scales: int) -> Ledger:
        """Every client has sent C_s bits (eq. 6), or 32 per element without quantization; the mean where s differs."""
        bits = [32 * dimension if s is None else paper_bits(dimension, s, scales) for s in levels]
        return replace(self, paper_bits=self.paper_bits + round(sum(bits) / max(len(bits), 1)))

    def after_losses(self, clients: int) -> Ledger:
        """Every client has sent f_i(w_k), a float32, for the rule."""
        return replace(self, wire_bytes_up=self.wire_bytes_up + 4 * clients)
