"""The lossy downlink: the server quantizes the model's change once for all clients and keeps what was lost for later.

For many clients, where passing on every frame no longer pays. With error feedback, what a round loses comes with the
next ones; that needs a quantizer that loses less than it keeps, so that norms are taken over short buckets, and s
starts high. The clients, and every evaluation, have the model that was really sent.
"""

from __future__ import annotations

from ..codecs.coding import compress
from ..quantizers.segments import bucket_lengths
from ..quantizers.streams import stream_key
from .downlink import Relay, add_up
from .messages import Vector

BUCKET = 256
_SERVER = -3  # in place of a client: the stream of the server's own quantizer


def broadcast(weights: Vector, wanted: Vector, s: int, seed: int, round: int) -> tuple[Vector, Vector, Relay]:
    """Send Q(wanted) to clients that hold `weights`. Returns what they hold then, the remainder, and what is sent."""
    segments = bucket_lengths(len(wanted), BUCKET)
    relay = Relay([(compress(wanted, s, stream_key(seed, round, _SERVER), segments=segments), 1.0)])
    after = add_up(weights, relay)
    return after, wanted - (after - weights), relay


def scales(dimension: int) -> int:
    """How many norms a broadcast carries."""
    return -(-dimension // BUCKET)
