"""Whether a strategy's new model is a mean over the clients, in which their quantization noise averages out."""

from __future__ import annotations

from flwr.serverapp import strategy as flower

from .privacy import WRAPPERS

_OTHERS = (flower.FedMedian, flower.FedTrimmedAvg, flower.MultiKrum, flower.Bulyan)  # made from FedAvg, but not means
_TREES = (flower.FedXgbBagging, flower.FedXgbCyclic)


def averages(strategy: object) -> bool:
    """Whether it is FedAvg or made from it, and none of those that take a median or choose among the clients.

    Wrappers for differential privacy count as what they wrap.

    >>> from flwr.serverapp.strategy import FedAvg, FedMedian
    >>> class Own(FedAvg): ...
    >>> averages(Own()), averages(FedMedian())
    (True, False)
    """
    if isinstance(strategy, WRAPPERS):
        return averages(strategy.strategy)
    return isinstance(strategy, flower.FedAvg) and not isinstance(strategy, _OTHERS + _TREES)
