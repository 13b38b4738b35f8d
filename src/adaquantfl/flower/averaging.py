"""Whether a strategy's new model is a mean over the clients, in which their quantization noise averages out."""

from __future__ import annotations

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from .privacy import WRAPPERS

_KNOWN: dict[type[Strategy], bool] = {
    flower.FedAvg: True,
    flower.FedAvgM: True,
    flower.FedAdam: True,
    flower.FedAdagrad: True,
    flower.FedYogi: True,
    flower.FedProx: True,
    flower.QFedAvg: True,
    flower.FedMedian: False,
    flower.FedTrimmedAvg: False,
    flower.Krum: False,
    flower.MultiKrum: False,
    flower.Bulyan: False,
    flower.FedXgbBagging: False,
    flower.FedXgbCyclic: False,
}


def averages(strategy: object) -> bool:
    """By the nearest class that is known; wrappers for differential privacy are what they wrap, others do not average.

    >>> from flwr.serverapp.strategy import FedAvg, FedMedian
    >>> class Own(FedAvg): ...
    >>> averages(Own()), averages(FedMedian())
    (True, False)
    """
    if isinstance(strategy, WRAPPERS):
        return averages(strategy.strategy)
    return next((_KNOWN[kind] for kind in type(strategy).__mro__ if kind in _KNOWN), False)
