"""The rule of private rounds: what steps, levels and share the next one has. It sees sums only.

A step follows from the mean square norm of the clients' updates of each tensor in the last round: rotated coordinates
are nearly Gaussian, so that s levels of four deviations clip one in 16,000. The levels double where the sum of the last
round was mostly rounding noise, and halve where it was hardly any. The share follows from the bits that are to be
spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..protocol.arrays import Vector
from ..quantizers.streams import stream_key, uniforms
from .accounting import ORDERS, Spent, check, gaussian_round, skellam_round
from .modular import MOST_BITS, RoundPlan, mean_squares
from .settings import Central, Distributed, Masked, Noisy

REACH = 4.0  # deviations of a rotated coordinate that fit
FIRST_BITS = 16  # of the first round, in which nothing is known of the updates but the size of the weights
NOISE_MOST, NOISE_LEAST = 2 / 3, 1 / 12  # the share of the sum's energy that is rounding noise
_ROTATION, _RESIDUE = -2, -3  # in place of a client: the streams that all clients of a round share
_MARGIN = 6.0  # deviations of a noisy sum that fit

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Control:
    """What is carried from round to round.

    Attributes:
        levels: s.
        deviations: of a rotated coordinate in each tensor; None before the first round.
        spent: the divergences of the rounds so far.
    """

    levels: int = 1
    deviations: Numbers | None = None
    spent: Spent = field(default_factory=lambda: np.zeros(len(ORDERS)))


def plan(
    private: Masked, control: Control, asked: RoundPlan, seed: int, model: Vector, lengths: Sequence[int]
) -> RoundPlan:
    """The next round's plan. BudgetSpent where it would cost too much privacy. asked: the round, and who is asked."""
    blank = replace(asked, rotation=stream_key(seed, asked.round, _ROTATION))
    if isinstance(private, Noisy):
        made = _noisy(private, blank, sum(lengths))
        check(control.spent, cost(private, made, sum(lengths)), private.epsilon, private.delta, asked.round + 1)
    else:
        made = _silent(private, control, blank, model, lengths)
    residue = int(uniforms(stream_key(seed, asked.round, _RESIDUE), 1)[0] * made.stride)
    return replace(made, residue=residue)


def _silent(private: Masked, control: Control, blank: RoundPlan, model: Vector, lengths: Sequence[int]) -> RoundPlan:
    if control.deviations is None:
        squares = mean_squares(model, lengths)
        whole = float(np.mean(np.square(model, dtype=np.float64))) or 1.0
        deviations = np.sqrt(np.where(squares > 0, squares, whole))
        levels = max(1, (2**FIRST_BITS - 1) // (2 * blank.clients))
    else:
        deviations, levels = control.deviations, control.levels
    bits = (2 * levels * blank.clients).bit_length()  # ceil(log2(2 s n + 1))
    if bits > MOST_BITS:
        raise ConfigError(
            f"A sum of {blank.clients:,} clients with {levels:,} levels needs {bits} bits; 32 is the most."
        )
    steps = tuple(map(float, (REACH / levels * deviations).astype(np.float32)))
    return replace(blank, stride=_stride(bits, private.bits), bits=bits, levels=levels, steps=steps)


def _noisy(private: Noisy, blank: RoundPlan, dimension: int) -> RoundPlan:
    """A number is of the size of its rounding error where an update is as long as it may be."""
    stride = 1
    while True:
        kept = ceil(dimension / stride)
        clip = private.clip / sqrt(stride)
        longest = sqrt(kept + kept / 4)  # rounding adds a quarter to a square at most, on average
        part = (private.noise * longest) ** 2 / private.honest(blank.clients)
        shared = part * blank.clients if isinstance(private, Distributed) else 0.0
        bits = ceil(np.log2(2 * _MARGIN * sqrt(blank.clients**2 + shared) + 1))
        if bits > MOST_BITS:
            raise ConfigError(f"The noise needs {bits} bits per number; {MOST_BITS} is the most. Ask for less noise.")
        if _stride(bits, private.bits) <= stride:
            break
        stride += 1
    part = max(part, 1e-6) if isinstance(private, Distributed) else 0.0
    steps = (float(np.float32(clip / sqrt(kept))),)
    return replace(blank, stride=stride, bits=bits, longest=longest, variance=part, clip=clip, levels=0, steps=steps)


def _stride(bits: int, wanted: float) -> int:
    """One coordinate in this many is sent, so that an element takes what is wanted at most."""
    return max(1, ceil(bits / wanted))


def cost(private: Noisy, made: RoundPlan, dimension: int) -> Spent:
    """What a round with this plan spends."""
    if isinstance(private, Central):
        return gaussian_round(private.noise)
    return skellam_round(made.variance * private.honest(made.clients), made.longest, ceil(dimension / made.stride))


def learnt(control: Control, made: RoundPlan, energies: Numbers, total: float, counts: Numbers, n: int) -> Control:
    """The state after a round without noise.

    Args:
        control: the state before.
        made: the round's plan.
        energies: per element of each tensor, the mean square of the clients' updates.
        total: the square norm of the mean of the kept coordinates.
        counts: kept coordinates of each tensor.
        n: clients in the sum.
    """
    steps = np.array(made.steps)
    found = np.maximum(np.sqrt(energies), steps * made.levels / REACH / 64)  # a tensor that rests keeps a step
    error = np.where(found < steps / 2, steps * found * 0.8 - found**2, steps**2 / 6)  # of one rounded coordinate
    share = float(np.sum(counts * error)) / n / total if total > 0 else 0.0
    levels = control.levels
    if control.deviations is not None:  # the first round's steps were a guess
        most = (2**MOST_BITS - 1) // (2 * made.clients)
        levels = min(2 * levels, most) if share > NOISE_MOST else levels
        levels = max(levels // 2, 1) if share < NOISE_LEAST else levels
    return replace(control, deviations=found, levels=levels)
