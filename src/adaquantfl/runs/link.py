"""Time, not only bits: what a round would have taken over links of given speeds, stragglers included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np

from ..quantizers.streams import stream_key
from .config import Config, Link

_LINKS = -2  # in place of a round: the stream that draws the clients' speeds


@dataclass(frozen=True)
class ReplyTiming:
    """A client whose reply was used, and what it took."""

    client: int
    bytes_up: int
    train_seconds: float
    encode_seconds: float


def round_seconds(link: Link, seed: int, heard: Iterable[ReplyTiming], bytes_down: Mapping[int, int]) -> float:
    """From the model's departure to the last reply's arrival; the server's own work comes on top.

    Each client receives, computes and sends; all do so side by side, and the slowest one counts.
    """
    slowest = 0.0
    for one in heard:
        up, down, compute = speeds(link.variation, seed, one.client)
        seconds = link.compute_seconds or one.train_seconds + one.encode_seconds
        transfer = 8e-6 * (bytes_down[one.client] / (link.down_mbps * down) + one.bytes_up / (link.up_mbps * up))
        slowest = max(slowest, 2e-3 * link.latency_ms + transfer + seconds / compute)
    return slowest


def time_price(config: Config, heard: Sequence[ReplyTiming]) -> Callable[[float, float], float]:
    """What one client's round costs with cost = "time": seconds on the median link. heard: the round's clients."""
    link = config.link or Link()

    def price(bytes_up: float, bytes_down: float) -> float:
        compute = link.compute_seconds or fmean(one.train_seconds + one.encode_seconds for one in heard)
        return 2e-3 * link.latency_ms + 8e-6 * (bytes_down / link.down_mbps + bytes_up / link.up_mbps) + compute

    return price


@lru_cache(maxsize=100_000)
def speeds(variation: float, seed: int, client: int) -> tuple[float, float, float]:
    """A client's own factors of uplink, downlink and computing speed: log-normal with median 1, fixed for a run."""
    key = np.array([stream_key(seed, _LINKS, client), 0], dtype=np.uint64)
    rng = np.random.Generator(np.random.Philox(key=key))
    up, down, compute = (math.exp(variation * x) for x in rng.standard_normal(3))
    return up, down, compute
