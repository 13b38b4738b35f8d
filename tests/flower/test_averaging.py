"""Whether a strategy averages, which the rule "auto" wants to know; and rules by name."""

from __future__ import annotations

from typing import Any

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, FedMedian, Strategy

from adaquantfl.flower import AdaQuantStrategy


class Own(FedAvg):
    pass


class OwnRobust(flower.Krum):
    pass


class Unknown(Strategy):
    def configure_train(self, *_: Any) -> Any: ...
    def aggregate_train(self, *_: Any) -> Any: ...
    def configure_evaluate(self, *_: Any) -> Any: ...
    def aggregate_evaluate(self, *_: Any) -> Any: ...
    def summary(self) -> None: ...


def private(inner: Strategy) -> Strategy:
    return flower.DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 1.0, 4)


MEANS: list[Strategy] = [
    FedAvg(), flower.FedAvgM(), flower.FedAdam(), flower.FedAdagrad(), flower.FedYogi(),
    flower.FedProx(proximal_mu=0.1), flower.QFedAvg(client_learning_rate=0.1), Own(), private(FedAvg()),
    private(private(Own())),
]  # fmt: skip
OTHERS: list[Strategy] = [
    FedMedian(), flower.FedTrimmedAvg(), flower.Krum(num_malicious_nodes=1), flower.Bulyan(num_malicious_nodes=0),
    flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=2), OwnRobust(num_malicious_nodes=1), Unknown(),
    private(FedMedian()), flower.FedXgbBagging(),
]  # fmt: skip


def test_each_strategy_is_known_by_its_nearest_base() -> None:
    for strategy in (*MEANS, *OTHERS):
        stages = AdaQuantStrategy(strategy)._stages
        assert stages.averages == (strategy in MEANS)
        assert stages.plain == (type(strategy) is FedAvg), "others may add momentum or noise"


def test_the_argument_decides_where_it_is_given() -> None:
    assert AdaQuantStrategy(Unknown(), averages=True)._stages.averages
    assert not AdaQuantStrategy(FedAvg(), averages=False)._stages.averages
