"""The server's line: any strategy gets plain weights, whoever sent what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import adaquantfl as aq
from adaquantfl.errors import CheckpointError, ConfigError, QuantizeError
from adaquantfl.flower import AdaQuantStrategy
from support.fake_flower import MODEL, Arrays, Client, FakeGrid, arrays_of, clients, final, record, run, same, step
from support.paper_strategy import paper_strategy
from support.scripted import Scripted

FINE = aq.Fixed(bits=16)


# ---------------------------------------------------------------------------------------- around any strategy

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": FedAvg,
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9),
    "FedAdam": flower.FedAdam,
    "FedAdagrad": flower.FedAdagrad,
    "FedYogi": flower.FedYogi,
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "FedMedian": flower.FedMedian,
    "FedTrimmedAvg": flower.FedTrimmedAvg,
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.1),
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=2),
    "Bulyan": lambda: flower.Bulyan(num_malicious_nodes=0),
    "DifferentialPrivacy": lambda: flower.DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=0.0, clipping_norm=10.0, num_sampled_clients=4
    ),
}
FLOATS = {"conv": MODEL["conv"], "double": MODEL["double"], "bias": MODEL["bias"]}  # the others' own limits aside

LARGE = {"conv": np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_many_levels_every_strategy_does_what_it_does_without(name: str) -> None:
    plain = run(STRATEGIES[name](), FakeGrid(clients(mods=())), 2, FLOATS)
    wrapped = run(paper_strategy(STRATEGIES[name](), rule=FINE), FakeGrid(clients()), 2, FLOATS)
    # Adaptive steps divide by the size of the update and blow up small differences of it.
    tolerance = 5e-3 if name in ("FedAdam", "FedAdagrad", "FedYogi") else 2e-5
    for key, array in final(wrapped).items():
        assert array.dtype == FLOATS[key].dtype, "whatever type the strategy computes in"
        np.testing.assert_allclose(array, final(plain)[key], atol=tolerance)
    assert wrapped.train_metrics_clientapp[2]["aq_quantized"] == 4
    assert wrapped.train_metrics_clientapp[2]["train_loss"] == pytest.approx(1.0)


def test_the_result_does_not_depend_on_who_is_first() -> None:
    one, other = FakeGrid(clients()), FakeGrid(clients())
    other.order = [2, 0, 3, 1]
    a, b = (final(run(paper_strategy(FedAvg()), grid, 2)) for grid in (one, other))
    assert all(np.array_equal(a[name], b[name]) for name in MODEL)


def test_a_strategy_with_a_loop_of_its_own_keeps_it() -> None:
    class Own(FedAvg):
        best = 0

        def start(self, grid: Any, initial_arrays: ArrayRecord, num_rounds: int = 3, **options: Any) -> Result:
            self.best += 1
            self.marked = options.pop("mark")
            return super().start(grid, initial_arrays, num_rounds, **options)

    inner = Own()
    result = run(paper_strategy(inner), FakeGrid(clients()), mark="x")
    assert (inner.best, inner.marked) == (1, "x")
    assert result.train_metrics_clientapp[1]["aq_quantized"] == 4
    assert "configure_train" not in vars(inner)  # as it was


def test_a_handler_does_not_see_the_order() -> None:
    class Watching(Client):
        def _train(self, message: Message, context: Any) -> Message:
            seen.append(list(message.content))
            return super()._train(message, context)

    seen: list[list[str]] = []
    run(paper_strategy(FedAvg(), downlink="exact"), FakeGrid([Watching(step(n)) for n in range(3)]), 2)
    assert seen == [["arrays", "config"]] * 6


# ------------------------------------------------------------------------------------- what clients remember


@pytest.mark.parametrize(("inner", "model"), [("FedAvg", MODEL), ("FedMedian", FLOATS)])
def test_the_exact_downlink_ends_in_the_same_model_bit_for_bit(inner: str, model: Arrays) -> None:
    results, down = [], []
    for downlink in ("model", "exact"):
        strategy = paper_strategy(STRATEGIES[inner](), rule=aq.Fixed(bits=1), scope="whole", downlink=downlink)
        results.append(run(strategy, FakeGrid(clients()), 4, model))
        down.append([results[-1].train_metrics_clientapp[n]["aq_message_bytes_down"] for n in range(1, 5)])
    assert same(*results)
    whole, exact = down
    assert exact[0] == whole[0], "nobody holds anything at first"
    if inner == "FedAvg":  # one level and one norm: few elements change
        assert all(small < 0.7 * large for small, large in zip(exact[1:], whole[1:], strict=True))


def test_a_client_that_forgot_its_state_gets_the_whole_model_in_the_same_round() -> None:
    grid, strategy = FakeGrid(clients()), paper_strategy(FedAvg(), downlink="exact", rule=aq.Fixed(bits=1))
    arrays, heard, kinds = record(FLOATS), [], []
    for number in range(1, 5):
        if number == 3:
            grid.contexts[2].state.clear()
        messages = list(strategy.configure_train(number, arrays, ConfigRecord(), grid))
        kinds.append(["arrays" not in message.content for message in messages])
        new, metrics = strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert new is not None
        assert metrics is not None
        arrays = new
        heard.append(metrics["aq_quantized"])
    assert heard == [4] * 4
    assert kinds == [[False] * 4, *[[True] * 4] * 3]
    again = grid.sent[12]  # after four messages in each of three rounds
    assert again.metadata.dst_node_id == 1002
    assert again.content.array_records


@pytest.mark.parametrize(
    ("quantizer", "downlink", "rule"),
    [
        ("stc", "model", aq.Fixed(bits=1)),
        ("nearest", "exact", aq.Fixed(bits=1)),
        ("nearest", "model", Scripted(rejected=(2,))),  # what the rejected round left out does not come back
    ],
)
def test_error_feedback_is_that_of_the_protocol_driven_by_hand(quantizer: str, downlink: str, rule: aq.Rule) -> None:
    by_hand = as_by_hand(downlink, 5, quantizer=quantizer, rule=rule, sparsity=20, seed=3)
    states = [client.state()["remainder"]["value"] for client in by_hand]
    assert all(np.any(value) for value in states), "something was left out"


def as_by_hand(downlink: str, rounds: int, **settings: Any) -> list[aq.Client]:
    """Plays an app and the protocol by hand, which end in the same model, and returns the clients of the latter."""
    model = {"a": MODEL["conv"], "b": MODEL["conv"][:3]}
    seen: list[Arrays] = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            seen.extend(arrays_of(reply) for reply in replies)
            return super().aggregate_train(server_round, replies)

    result = run(paper_strategy(Watching(), downlink=downlink, **settings), FakeGrid(clients()), rounds, model)
    server, by_hand = aq.Server(model, **settings), [aq.Client(number) for number in range(4)]
    for number in range(rounds):
        for client, order in server.open(range(4)).items():
            weights: Any = by_hand[client].open(order)
            trained = {name: step(client)(name, array) for name, array in weights.items()}
            server.receive(client, by_hand[client].reply(trained, loss=1.0, examples=10 + client))
        decoded: Any = server.heard()
        for client in range(4):
            got = seen[4 * number + client]
            assert all(np.array_equal(got[name], decoded[client][name]) for name in model), (number, client)
        there = {name: sum((10 + c) / 46 * decoded[c][name].astype("f8") for c in range(4)) for name in model}
        theirs = strategy_mean(decoded)
        np.testing.assert_allclose(theirs["a"], there["a"], atol=1e-6)
        server.close(theirs)
    assert all(np.array_equal(final(result)[name], server.weights[name]) for name in model)  # type: ignore[index]
    return by_hand


def strategy_mean(decoded: dict[int, Arrays]) -> Arrays:
    """What Flower's FedAvg makes of these arrays."""
    told = [Client(lambda key, _, n=n: decoded[n][key], examples=10 + n, mods=()) for n in decoded]
    return final(run(FedAvg(), FakeGrid(told), model=decoded[0]))


def test_a_model_that_somebody_changed_between_rounds_is_the_one_that_counts() -> None:
    class Shrinking(FedAvg):
        def configure_train(self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any) -> Any:
            shrunk = record({name: array.numpy() * 0.5 for name, array in arrays.items()})
            return super().configure_train(server_round, shrunk, config, grid)

    results = [
        run(paper_strategy(Shrinking(), rule=aq.Fixed(bits=1), downlink=downlink), FakeGrid(clients()), 3, FLOATS)
        for downlink in ("model", "exact")
    ]
    assert same(*results)
    assert [results[1].train_metrics_clientapp[n]["aq_quantized"] for n in (1, 2, 3)] == [4, 4, 4]


# ---------------------------------------------------------------------------------------- the rule


class Learning(FakeGrid):
    """Clients whose loss falls from round to round."""

    def __init__(self, losses: list[float], **options: Any) -> None:
        super().__init__(clients(**options))
        self.losses = iter(losses)

    def send_and_receive(self, messages: Any, **options: Any) -> Any:
        messages = list(messages)
        if messages and messages[0].metadata.message_type == "train":
            loss = next(self.losses)
            for client in self.clients:
                client.loss = loss
        return super().send_and_receive(messages, **options)


LOSSES = [2.0, 1.8, 1.1, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01]


def levels_by_hand(rule: aq.AdaQuant, d: int, scales: int, eta: Callable[[int], float]) -> list[int | None]:
    state, bits, loss, chosen = rule.init(), 0, None, []
    for number, after in enumerate(LOSSES):
        state, plan = rule.plan(state, aq.Seen(bits=bits, dimension=d, loss=loss, eta=eta(number)))
        chosen.append(plan.levels)
        bits, loss = bits + aq.paper_bits(d, plan.levels, scales), after
    return chosen


def test_s_follows_the_papers_rule_and_a_falling_learning_rate_lowers_it() -> None:
    class Decaying(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            config["lr"] = 0.1 * 0.98**server_round
            return super().configure_train(server_round, arrays, config, grid)

    strategy, d = paper_strategy(Decaying()), 600 + 40 + 40 + 1
    result = run(strategy, Learning(LOSSES), len(LOSSES))
    metrics = [result.train_metrics_clientapp[number] for number in range(1, len(LOSSES) + 1)]
    expected = levels_by_hand(aq.AdaQuant(s0=2), d, 4, lambda number: 0.1 * 0.98 ** (number + 1))
    assert [m["aq_s"] for m in metrics] == expected
    assert len(set(expected)) > 2
    assert [m["aq_paper_bits"] for m in metrics] == [aq.paper_bits(d, s, 4) for s in expected]
    assert [m["aq_bits_per_element"] for m in metrics] == [s.bit_length() for s in expected]
    assert strategy.server is not None
    assert strategy.server.current.ledger.paper_bits == sum(m["aq_paper_bits"] for m in metrics)


def test_losses_are_weighted_like_the_model_and_useless_ones_left_out() -> None:
    group = clients()
    for client, loss in zip(group, [1.0, 3.0, float("nan"), -1.0], strict=True):
        client.loss = loss
    strategy = paper_strategy(FedAvg())
    run(strategy, FakeGrid(group))
    assert strategy.server is not None
    assert strategy.server.current.loss == pytest.approx((10 * 1.0 + 11 * 3.0) / 21)


def test_without_a_loss_s_stays_and_the_log_says_why(log: pytest.LogCaptureFixture) -> None:
    strategy = paper_strategy(FedAvg(), loss_key="my_loss")
    run(strategy, FakeGrid(clients()), 1)
    assert strategy.server is not None
    assert strategy.server.current.rule["s"] == 3
    assert "as 'my_loss', so that s stays as it is" in log.text


def test_rules_that_need_no_loss_do_not_ask_for_one(log: pytest.LogCaptureFixture) -> None:
    result = run(paper_strategy(FedAvg(), rule="auto"), FakeGrid(clients(loss=None)), 2)
    assert "training loss" not in log.text
    assert result.train_metrics_clientapp[2]["aq_quantized"] == 4


def test_bytes_ratios_error_and_time_are_in_flowers_metrics() -> None:
    class Weighing(FakeGrid):
        def send_and_receive(self, messages: Any, **options: Any) -> Any:
            messages = list(messages)
            replies = list(super().send_and_receive(messages, **options))
            for kind, some in (("down", messages), ("up", replies)):
                weighed.append((messages[0].metadata.message_type, kind, sum(map(serialized, some))))
            return replies

    def serialized(message: Message) -> int:
        return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())

    weighed: list[tuple[Any, str, int]] = []
    strategy = paper_strategy(FedAvg(), rule=aq.Fixed(bits=4), downlink="exact")
    result = run(strategy, Weighing(clients()), 3, FLOATS)
    for number in range(3):
        train = result.train_metrics_clientapp[number + 1]
        evaluate = result.evaluate_metrics_clientapp[number + 1]
        found = {(kind, way): size for kind, way, size in weighed[4 * number : 4 * number + 4]}
        for (kind, way), size in found.items():
            metrics = train if kind == "train" else evaluate
            assert metrics[f"aq_message_bytes_{way}"] == pytest.approx(size, rel=0.02), (kind, way)
        model = 4 * 4 * (600 + 40 + 1)
        assert train["aq_ratio_up"] == pytest.approx(model / train["aq_message_bytes_up"])
        assert train["aq_ratio_down"] == pytest.approx(model / train["aq_message_bytes_down"])
        assert 0 < train["aq_error"] < 4, "with 15 levels"
        assert 0 < train["aq_seconds"] < 60
        assert train["aq_failed"] == train["aq_plain"] == 0
    fine = run(paper_strategy(FedAvg(), rule=FINE), FakeGrid(clients()), 1, FLOATS)
    assert fine.train_metrics_clientapp[1]["aq_error"] < 1e-6
    exact = run(paper_strategy(FedAvg(), rule=aq.FullPrecision()), FakeGrid(clients()), 1, FLOATS)
    assert exact.train_metrics_clientapp[1]["aq_error"] == 0


def test_the_number_of_the_round_goes_on_after_a_restart() -> None:
    class Seeing(Client):
        def _train(self, message: Message, context: Any) -> Message:
            trained.append(message.content["config"]["server-round"])
            return super()._train(message, context)

        def _evaluate(self, message: Message, context: Any) -> Message:
            evaluated.append(message.content["config"]["server-round"])
            return super()._evaluate(message, context)

    class Counting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            aggregated.append(server_round)
            return super().aggregate_train(server_round, replies)

    trained: list[Any] = []
    evaluated: list[Any] = []
    aggregated: list[int] = []
    central: list[int] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        central.append(server_round)

    first, second = paper_strategy(Counting()), paper_strategy(Counting())
    grid = FakeGrid([Seeing(step(0)), Seeing(step(1))])
    half = run(first, grid, 2, FLOATS, evaluate_fn=evaluate)
    second.load_state_dict(first.state_dict())
    second.start(grid, half.arrays, 3, 60.0, ConfigRecord(), ConfigRecord(), evaluate)  # by place
    assert trained == evaluated == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert aggregated == [1, 2, 3, 4, 5]
    assert central == [0, 1, 2, 2, 3, 4, 5]
    assert second.state_dict()["rounds"] == 5
    by_hand = paper_strategy(Counting())
    by_hand.load_state_dict(second.state_dict())
    messages = by_hand.configure_train(6, by_hand.arrays, ConfigRecord(), grid)  # who counts by hand is believed
    assert {message.content["config"]["server-round"] for message in messages} == {6}


def test_fresh_arrays_are_rounded_for_everybody_before_the_first_round() -> None:
    """FedAdam keeps the model that it was started with: it has to be the one that clients get."""

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        seen.append(arrays["conv"].numpy())

    seen: list[Any] = []
    sizes = {}
    for fresh in (False, True):
        strategy = AdaQuantStrategy(flower.FedAdam(), fresh=fresh)
        result = run(strategy, FakeGrid(clients(2)), 1, LARGE, evaluate_fn=evaluate)
        sizes[fresh] = result.train_metrics_clientapp[1]["aq_message_bytes_down"]
    assert sizes[True] < sizes[False] / 3
    assert np.array_equal(seen[0], LARGE["conv"])
    assert len(np.unique(seen[2])) < 200, "the evaluation of round 0 has the rounded model too"
    with pytest.raises(ConfigError, match="cannot be read"):
        AdaQuantStrategy(FedAvg(), fresh=True).start(FakeGrid(clients(2)), {"conv": 1}, 1)


@pytest.mark.parametrize("state", [{}, {"format": 1}, {"format": 2, "what": 3}, {"format": 2, "server": {"a": 1}}])
def test_a_state_that_is_none_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        paper_strategy(FedAvg()).load_state_dict(state)


def test_wrong_settings_are_refused_with_a_sentence() -> None:
    from flwr.server.strategy import FedAvg as OldFedAvg

    with pytest.raises((ConfigError, aq.RuleError), match=r"flwr\.serverapp\.strategy, such as FedAvg\(\)"):
        paper_strategy(OldFedAvg())  # type: ignore[arg-type]
    for error, options in (
        (QuantizeError, {"seed": "one"}),
        (ConfigError, {"exact": [3]}),
        (aq.RuleError, {"rule": "adaqant"}),
    ):
        with pytest.raises(error):
            paper_strategy(FedAvg(), **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="step"):
        paper_strategy(FedAvg(), step="sum")  # the wrapped strategy aggregates


def test_a_wrapped_strategy_that_returns_nan_leaves_the_model_and_no_round_open() -> None:
    class Diverging(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            if server_round == 1 and arrays is not None:
                arrays = record({name: array.numpy() * np.float32(np.nan) for name, array in arrays.items()})
            return arrays, metrics

    strategy = paper_strategy(Diverging(), rule=FINE)
    result = run(strategy, FakeGrid(clients()), 2, FLOATS)
    assert strategy.server is not None
    assert strategy.server.current.round == 1, "the second round counts"
    assert all(np.isfinite(array).all() for array in final(result).values())


def test_an_app_whose_loss_is_negative_is_trained_all_the_same() -> None:
    strategy = paper_strategy(FedAvg())
    group = [Client(lambda _, array: array, loss=-3.0) for _ in range(3)]
    assert run(strategy, FakeGrid(group)).train_metrics_clientapp[1]["aq_quantized"] == 3
    assert not strategy.refusals
