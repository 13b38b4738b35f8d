"""The rules by name: how a configuration makes one, and where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..quantizers.registry import find
from .adaquant import AdaQuant
from .base import Schedule
from .cosine import Cosine
from .cost_aware import CostAware
from .dadaquant import DAdaQuant
from .fixed import Fixed, FullPrecision
from .resolution import FedDQ, FixedStep
from .smoothed import SmoothedAdaQuant

_HONIG = "Honig, Zhao, Mullins: DAdaQuant, ICML 2022"
_JHUNJHUNWALA = "Jhunjhunwala, Gadhikar, Joshi, Eldar: Adaptive Quantization of Model Updates, ICASSP 2021"


@dataclass(frozen=True)
class Rule:
    """A rule that `method` may name. build: from the configuration's keys. line, reference: for people."""

    build: Callable[[Any], Schedule]
    line: str
    reference: str


def _fixed(bits: int) -> Rule:
    # Not a lambda in a loop: each has its own bits.
    return Rule(lambda c: Fixed(bits), f"s = {2**bits - 1} in every round", "Alistarh et al.: QSGD, NeurIPS 2017")


BASELINES = {f"{bits}bit": bits for bits in range(1, 17)}
RULES: dict[str, Rule] = {
    "adaquant": Rule(
        lambda c: AdaQuant(c.s0, c.interval, c.guard, c.rounding),
        "the paper's: s grows with the square root of how far the loss has fallen",
        _JHUNJHUNWALA,
    ),
    "adaquant-smooth": Rule(
        lambda c: SmoothedAdaQuant(c.s0, c.interval, c.guard, c.rounding),
        "the same on a smoothed loss of the rounds, which costs nothing to know",
        _JHUNJHUNWALA,
    ),
    "cost-aware": Rule(
        lambda c: CostAware(
            c.rule_s0 or find(c.quantizer).start_levels or CostAware.s0, c.survey_every, c.harm, c.brake, c.undo
        ),
        "ours: the paper's bound with what a round really costs and really loses",
        "docs/theory.md",
    ),
    "dadaquant": Rule(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience), "s doubles on a plateau, and follows the clients' data", _HONIG
    ),
    "dadaquant-time": Rule(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience, clients=False), "s doubles on a plateau of the loss", _HONIG
    ),
    "dadaquant-clients": Rule(
        lambda c: DAdaQuant(c.rule_s0 or 1, c.patience, time=False),
        "the same s in every round, more for clients with more data",
        _HONIG,
    ),
    "feddq": Rule(
        lambda c: FedDQ(c.resolution),
        "each client takes the bits that its update's range needs; for norm = linf",
        "Qu, Song, Tsui: FedDQ, 2022",
    ),
    "fixed-step": Rule(
        lambda c: FixedStep(c.resolution), "levels lie equally far apart in every round", "a baseline of ours"
    ),
    "cosine": Rule(
        lambda c: Cosine(c.rule_s0 or 1, c.s_end, c.rounds), "s rises along half a cosine", "a baseline of ours"
    ),
    **{name: _fixed(bits) for name, bits in BASELINES.items()},
    "fp32": Rule(lambda c: FullPrecision(), "float32, not quantized", "McMahan et al.: FedAvg, AISTATS 2017"),
}
