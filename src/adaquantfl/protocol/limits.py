"""A limit on the size of updates: one client's mistake, or malice, must not be everybody's model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigError
from ..names import unknown

REFUSE, CLIP = ACTIONS = ("refuse", "clip")


@dataclass(frozen=True)
class NormLimit:
    """A bound on an update's l2 norm: absolute, or a multiple of the median of the round's updates.

    clip: an update above the bound is scaled down to it; otherwise it is refused.

    To refuse, the server looks at the norm of the update before it was quantized. A frame's scales are the norms of its
    segments, so that its own header tells it. What the levels decode to is larger by the quantizer's noise, at most by
    sqrt(d) / s. Frames whose scales are no l2 norms (norm "linf", `eden`, `centroid`, `stc`) are decoded, and judged by
    what they decode to. To clip, the server decodes every frame: what is bounded is what moves the model.

    >>> NormLimit.of("10x").refused({0: 1.0, 1: 2.0, 2: 50.0}, median=2.0)
    {2: 'its update has norm 50, above 10 times the median of the round, 2.'}
    >>> NormLimit.of("10x", "clip").factors({0: 1.0, 1: 2.0, 2: 50.0}, median=2.0)
    {2: 0.4}
    """

    absolute: float = math.inf
    times_median: float = math.inf
    clip: bool = False

    @staticmethod
    def of(value: float | str, action: str = REFUSE) -> NormLimit:
        """From the settings `max_update_norm`, a number, "10x", or 0 for no limit, and `norm_action`."""
        if action not in ACTIONS:
            raise ConfigError(unknown("norm_action", action, ACTIONS))
        clip = action == CLIP
        if isinstance(value, str):
            factor = re.fullmatch(r"(\d+(?:\.\d+)?)x", value)
            if factor is None or float(factor[1]) < 1:
                raise ConfigError(
                    f"max_update_norm = {value!r}: use a number, or a multiple of the round's median such as '10x'."
                )
            return NormLimit(times_median=float(factor[1]), clip=clip)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigError(f"max_update_norm = {value}: it must be above 0, or 0 for no limit.")
        return NormLimit(absolute=float(value) or math.inf, clip=clip)

    @property
    def needs_all(self) -> bool:
        """Whether every norm of the round must be known before one is judged."""
        return self.times_median < math.inf

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.needs_all or self.absolute < math.inf

    def refused(self, norms: Mapping[int, float], median: float) -> dict[int, str]:
        """Who is refused, and why. median: of the round. A norm that is not a number is above every limit."""
        reasons = {}
        for who, norm in norms.items():
            if math.isnan(norm):
                reasons[who] = "its update has norm NaN: it is not finite."
            elif self.clip:
                continue
            elif not norm <= self.absolute:
                reasons[who] = f"its update has norm {norm:g}, above max_update_norm = {self.absolute:g}."
            elif not norm <= self.times_median * median:
                reasons[who] = (
                    f"its update has norm {norm:g}, above {self.times_median:g} times the median of the round, "
                    f"{median:g}."
                )
        return reasons

    def factors(self, norms: Mapping[int, float], median: float) -> dict[int, float]:
        """Who is scaled down, and what its update is multiplied by."""
        if not (self.clip and self.is_set):
            return {}
        bound = self.times_median * median if self.needs_all else self.absolute
        return {who: bound / norm for who, norm in norms.items() if norm > bound}
