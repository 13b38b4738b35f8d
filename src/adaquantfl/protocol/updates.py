"""A round's updates as a server step sees them: their weighted sum, or every client's values tile by tile.

The sum is the paper's (eq. 3). It is made from the frames by an `Accumulator`, and clients can repeat it. Steps that
compare clients with each other, such as a median, get the decoded values of all of them for some elements at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codecs import raw
from ..codecs.accumulator import Accumulator, Checked, tiles
from ..codecs.frame import Frame
from ..quantizers.choice import CLOSE
from ..quantizers.vectors import energy
from ..rules import Energies
from .arrays import AnyArray, Layout, Model, Vector, mean_of_others, merged_others
from .limits import Changes, changes_of, far_off
from .parcels import Relay, rescaled

_USUAL_SHARE = (1 + CLOSE) / 2  # what an error is of the one that is allowed
# (clients, elements) -> one value for each element; in float32 or float64, as the values are
Statistic = Callable[[AnyArray], AnyArray]


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a reply: the update's frame, float32 buffers where the model has some, arrays as they are."""

    frame: Checked
    buffers: Checked | None
    others: bytes

    def buffer_values(self, model: Model) -> Vector:
        """The float32 buffers; those of the round's model where there are none to send."""
        return model.buffers if self.buffers is None else raw.values(self.buffers.frame)


@dataclass(frozen=True, eq=False, slots=True)
class Update:
    """One client's update that counts.

    Attributes:
        client: its number.
        weight: p_i.
        factor: what the update is multiplied by, below 1 where `norm_action = "clip"` made it shorter.
        read: returns the parts of the reply, which waits as its bytes: read them once, and let go of them.
    """

    client: int
    weight: float
    factor: float
    read: Callable[[], Parts]


@dataclass(frozen=True, eq=False)
class Combined:
    """What a step makes of a round's updates: what moves the model, and the arrays that are not quantized.

    relay: the frames that `update` is the sum of, where they are smaller than the model. left_out: clients whose update
    the step did not use.
    """

    update: Vector
    buffers: Vector
    others: bytes
    relay: Relay | None = None
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Updates:
    """The updates of a round's clients, in client order.

    model: of the round. total: what the weights of all that were asked add up to. scaled: whether the sum over those
    who answered is brought to that total. error: the share of an update's energy that its noise may be, where clients
    were told that.
    """

    each: tuple[Update, ...]
    layout: Layout
    model: Model
    total: float = 1.0
    scaled: bool = False
    error: float = 0.0

    def __len__(self) -> int:
        return len(self.each)

    def sum(self) -> Combined:
        """sum of p_i Q(update_i) over those who answered, p renormalised; buffers and other arrays likewise (eq. 3).

        A clipped update counts with a smaller weight, and the weight that it lost is not given to others. Its buffers
        move from the model's towards the client's by the same factor.
        """
        layout, model = self.layout, self.model
        update, buffers = Accumulator(layout.dimension), Accumulator(max(1, layout.buffers))
        others, size = list[bytes](), 0  # of the frames
        weight = kept = 0.0  # kept: of the model's own buffers
        for one in self.each:
            parts, p = one.read(), one.weight * one.factor
            update.add(parts.frame.weighted(p))
            if parts.buffers is not None:
                buffers.add(parts.buffers.weighted(p))
            others += [parts.others] if layout.other_bytes else []
            size += parts.frame.frame.size
            weight += one.weight
            kept += one.weight * (1.0 - one.factor)
        factor, statistics = 1.0, buffers.take()[: layout.buffers]
        if kept:
            statistics += np.float32(kept) * model.buffers
        if self.each and self.scaled:
            factor = float(np.float32(self.total / weight))
            statistics = rescaled(statistics, 1 / weight)
        weights = [one.weight * one.factor for one in self.each]
        if others and kept:
            others, weights = [*others, model.others], [*weights, kept]
        merged = mean_of_others(layout, others, weights) if others else b""
        relay = Relay(_Frames(self.each), factor) if size < 4 * layout.dimension else None
        return Combined(rescaled(update.take(), factor), statistics, merged, relay)

    def energies(self) -> Energies:
        """The squared norms of the updates and of their mean, for rules that tell clients their largest error."""
        weights = np.array([one.weight for one in self.each])
        square = (self.total if self.scaled else weights.sum()) ** 2  # as `sum` makes the step
        weights /= weights.sum()
        total, mean, noise = Accumulator(self.layout.dimension), 0.0, 0.0
        for one, p in zip(self.each, weights.tolist(), strict=True):
            frame = one.read().frame
            total.add(frame.weighted(p * one.factor))
            decoded, share = (one.factor * frame.decoded_norm) ** 2, _USUAL_SHARE * self.error
            mean += p * decoded / (1 + share)
            noise += p * p * decoded * share / (1 + share)
        return Energies(square * energy(total.take()), square * mean, square * noise, float(np.sum(weights**2)))

    def only(self, places: Sequence[int]) -> Updates:
        """Some of the updates, by their places. Each counts the same, whatever data its client says it has."""
        kept = tuple(replace(self.each[place], weight=1 / len(places)) for place in places)
        return replace(self, each=kept, total=1.0, scaled=False)

    def by_element(self, statistic: Statistic) -> Combined:
        """A statistic of each element over the clients, and of each element of the other arrays. Each client counts the
        same."""
        update = np.empty(self.layout.dimension, dtype=np.float32)
        for here, rows in self.tiles():
            update[here] = statistic(rows)
        buffers = statistic(self._buffers()).astype(np.float32) if self.layout.buffers else self.model.buffers
        others = [one.read().others for one in self.each] if self.layout.other_bytes else []
        return Combined(update, buffers, merged_others(self.layout, others, statistic) if others else b"")

    def tiles(self) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """Where some elements are, and their values: a row for each client.

        Memory is a level, mostly a byte, for each element of each client; a float where a quantizer rotates.
        """
        return tiles([one.read().frame.weighted(one.factor) for one in self.each])

    def far_off(self) -> set[int]:
        """Places of the updates that move an array that is not quantized too far (`limits.far_off`)."""
        changes = dict[int, Changes]()
        for place, one in enumerate(self.each):
            parts = one.read()
            new = Model(self.model.weights, parts.buffer_values(self.model), parts.others)
            changes[place] = changes_of(self.layout, self.model, new)
        return set(far_off(changes))

    def squared_distances(self) -> npt.NDArray[np.float64]:
        """The squared l2 distance of every two updates, float32 buffers included. O(dimension x clients^2) time."""
        total = np.zeros((len(self), len(self)))
        for _, rows in self.tiles():
            total += _squared_distances(rows)
        return total + _squared_distances(self._buffers()) if self.layout.buffers else total

    def _buffers(self) -> npt.NDArray[np.float32]:
        """The clients' buffers, a row for each client; those of a clipped update are clipped too."""
        old = self.model.buffers
        rows = []
        for one in self.each:
            new = one.read().buffer_values(self.model)
            rows.append(new if one.factor == 1.0 else old + np.float32(one.factor) * (new - old))
        return np.stack(rows)


@dataclass(frozen=True, eq=False)
class _Frames(Sequence[tuple[Frame, float]]):
    """The frames of updates and their weights, each read when it is asked for."""

    each: tuple[Update, ...]

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, place: Any) -> Any:
        one = self.each[place]
        return one.read().frame.frame, one.weight * one.factor


def _squared_distances(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Without BLAS, whose sums depend on the number of threads."""
    values, out = rows.astype(np.float64), np.zeros((len(rows), len(rows)))
    for i in range(len(rows) - 1):
        out[i, i + 1 :] = np.square(values[i + 1 :] - values[i]).sum(axis=1)
    return out + out.T
