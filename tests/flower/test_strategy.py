"""The server's line: any strategy gets plain weights, whoever sent what."""

from __future__ import annotations

import json
import logging
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.app.message.message import make_message
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy

import adaquantfl as aq
from adaquantfl.errors import AdaQuantError, CheckpointError, ConfigError, FrameError, QuantizeError
from adaquantfl.flower import AdaQuantStrategy, quantize_mod
from adaquantfl.flower.plan import EXACT, Plan
from adaquantfl.flower.update import NAME, Model, pack
from adaquantfl.quantizers.registry import find, names
from adaquantfl.rules import Cosine
from support.fake_flower import Arrays, Client, FakeGrid, arrays_of, record

MODEL: Arrays = {
    "conv": np.linspace(-1, 1, 600, dtype="f4").reshape(20, 30),
    "half": np.linspace(-1, 1, 40).astype("f2"),
    "double": np.linspace(-1, 1, 40),
    "bias": np.array(0.5, "f4"),
    "running_var": np.full(4, 0.1, "f4"),
    "num_batches_tracked": np.array(3, "i8"),
}
FINE = aq.Fixed(bits=16)


def step(number: int) -> Callable[[str, Any], Any]:
    """A client's training: another direction for each client."""

    def change(name: str, array: Any) -> Any:
        if array.dtype.kind != "f":
            return array + array.dtype.type(1)
        noise = np.random.default_rng([number, len(name)]).standard_normal(array.shape)
        return (array + 0.01 * np.abs(noise) if name == "running_var" else array + 0.01 * noise).astype(array.dtype)

    return change


def clients(count: int = 4, **options: Any) -> list[Client]:
    return [Client(step(number), examples=10 + number, **options) for number in range(count)]


def run(strategy: Strategy, grid: FakeGrid, rounds: int = 1, model: Arrays = MODEL, **options: Any) -> Result:
    return strategy.start(grid=grid, initial_arrays=record(model), num_rounds=rounds, **options)


def final(result: Result) -> Arrays:
    return {name: array.numpy() for name, array in result.arrays.items()}


def all_of(**options: Any) -> FedAvg:
    return FedAvg(min_available_nodes=4, **options)


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


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_many_levels_every_strategy_does_what_it_does_without(name: str) -> None:
    plain = run(STRATEGIES[name](), FakeGrid(clients(mods=())), 2, FLOATS)
    wrapped = run(AdaQuantStrategy(STRATEGIES[name](), schedule=FINE), FakeGrid(clients()), 2, FLOATS)
    # Adaptive steps divide by the size of the update and blow up small differences of it.
    tolerance = 5e-3 if name in ("FedAdam", "FedAdagrad", "FedYogi") else 2e-5
    for array, expected in zip(final(wrapped).values(), final(plain).values(), strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_allclose(array, expected, atol=tolerance)
    assert wrapped.train_metrics_clientapp[2]["aq_quantized"] == 4
    assert wrapped.train_metrics_clientapp[2]["train_loss"] == pytest.approx(1.0)


def test_arrays_of_all_types_reach_the_wrapped_strategy_unharmed() -> None:
    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            seen.extend(arrays_of(reply) for reply in replies)
            return super().aggregate_train(server_round, replies)

    seen: list[Arrays] = []
    run(AdaQuantStrategy(Watching(), schedule=FINE), FakeGrid(clients()))
    for number, arrays in enumerate(seen):
        assert list(arrays) == list(MODEL)
        for name, array in arrays.items():
            expected = np.asarray(step(number)(name, MODEL[name]))
            assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
            if name in ("running_var", "num_batches_tracked"):
                np.testing.assert_array_equal(array, expected)
            else:
                np.testing.assert_allclose(array, expected, atol=1e-3 if name == "half" else 2e-5)


@pytest.mark.parametrize("quantizer", [name for name in names() if find(name).follows_rule and not find(name).feedback])
@pytest.mark.parametrize("s0", [2, 0.4])
def test_the_mean_is_the_one_that_the_accumulator_computes(quantizer: str, s0: float) -> None:
    strategy = AdaQuantStrategy(FedAvg(), schedule=Cosine(s0=s0, s_end=9), quantizer=quantizer, seed=5)
    model = {"a": MODEL["conv"], "b": MODEL["conv"][:3]}
    result = run(strategy, FakeGrid(clients()), model=model)
    total, weights = aq.Accumulator(690), np.arange(10, 14) / 46
    s, stretch = find(quantizer).levels_for(s0, np.array([600, 90]))
    for number, weight in enumerate(weights):
        update = np.concatenate([(step(number)(name, array) - array).ravel() for name, array in model.items()])
        key = aq.stream_key(5, 0, number)
        total.add(aq.compress(update, s, key, segments=[600, 90], stretch=stretch, quantizer=quantizer), weight)
    expected = np.concatenate([array.ravel() for array in model.values()]) + total.result()
    after = np.concatenate([array.ravel() for array in final(result).values()])
    np.testing.assert_allclose(after, expected, atol=1e-6)
    metrics = result.train_metrics_clientapp[1]
    assert metrics["aq_s"] == pytest.approx(s0)
    assert metrics["aq_paper_bits"] == aq.paper_bits(690, s, 2)


@pytest.mark.parametrize(("quantizer", "says"), [("stc", "no levels"), ("nearest", "keep"), ("centroids", "centroid")])
def test_a_quantizer_that_no_schedule_can_drive_is_refused_at_once(quantizer: str, says: str) -> None:
    with pytest.raises(AdaQuantError, match=says):
        AdaQuantStrategy(FedAvg(), quantizer=quantizer)


def test_the_new_model_is_unbiased() -> None:
    """The mean over 150 rounds is within 5 standard errors in each of 50 elements; false alarms: about 1e-4."""
    before, s, rounds = np.linspace(-1, 1, 50, dtype="f4"), 3, 150
    strategy, grid, results = AdaQuantStrategy(FedAvg(), schedule=aq.Fixed(bits=2)), FakeGrid(clients(2)), []
    for number in range(rounds):  # from the same model each time
        messages = strategy.configure_train(number, record({"w": before}), ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert arrays is not None
        results.append(arrays["w"].numpy())
    mean, variance = before.copy(), np.zeros(50)
    for number, weight in enumerate((10 / 21, 11 / 21)):
        update = step(number)("w", before) - before
        unit = np.linalg.norm(update) / s
        up = np.abs(update) / unit % 1  # the probability of the upper of the two levels
        mean += weight * update
        variance += (weight * unit) ** 2 * up * (1 - up)
    assert (np.abs(np.mean(results, axis=0) - mean) < 5 * np.sqrt(variance / rounds) + 1e-6).all()


def test_clients_without_the_mod_work_in_the_same_round() -> None:
    mixed = [*clients(2), *(Client(step(number), examples=10 + number, mods=()) for number in (2, 3))]
    result = run(AdaQuantStrategy(FedAvg(), schedule=FINE), FakeGrid(mixed))
    plain = run(FedAvg(), FakeGrid(clients(mods=())))
    for name, array in final(result).items():
        np.testing.assert_allclose(array, final(plain)[name], atol=1e-3 if name == "half" else 2e-5)
    metrics = result.train_metrics_clientapp[1]
    assert (metrics["aq_quantized"], metrics["aq_plain"]) == (2, 2)


def test_clients_with_the_mod_work_without_the_strategy() -> None:
    result, plain = run(FedAvg(), FakeGrid(clients())), run(FedAvg(), FakeGrid(clients(mods=())))
    assert all(np.array_equal(array, final(plain)[name]) for name, array in final(result).items())


def test_the_strategy_alone_changes_nothing() -> None:
    alone, plain = (run(s, FakeGrid(clients(mods=()))) for s in (AdaQuantStrategy(FedAvg()), FedAvg()))
    assert all(np.array_equal(array, final(plain)[name]) for name, array in final(alone).items())


def test_a_clipping_mod_behind_ours_sees_plain_weights() -> None:
    def private(inner: Strategy) -> Strategy:
        return flower.DifferentialPrivacyClientSideFixedClipping(inner, 0.0, clipping_norm=0.01, num_sampled_clients=4)

    clipped = run(private(FedAvg()), FakeGrid(clients(mods=(fixedclipping_mod,))), model=FLOATS)
    both = FakeGrid(clients(mods=(quantize_mod, fixedclipping_mod)))
    result = run(AdaQuantStrategy(private(FedAvg()), schedule=FINE), both, model=FLOATS)
    assert result.train_metrics_clientapp[1]["aq_quantized"] == 4
    for name, array in final(clipped).items():
        assert np.linalg.norm(array - FLOATS[name]) < 0.011
        np.testing.assert_allclose(final(result)[name], array, atol=1e-6)


def test_evaluation_and_the_round_number_are_the_wrapped_strategys() -> None:
    grid = FakeGrid(clients())
    result = run(AdaQuantStrategy(FedAvg()), grid, 2, evaluate_fn=lambda *_: MetricRecord({"accuracy": 0.5}))
    assert result.evaluate_metrics_clientapp[2]["seen"] == len(MODEL)
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.5
    assert grid.sent[0].content["config"]["server-round"] == 2


def test_the_result_does_not_depend_on_who_is_first() -> None:
    one, other = FakeGrid(clients()), FakeGrid(clients())
    other.order = [2, 0, 3, 1]
    a, b = (final(run(AdaQuantStrategy(FedAvg()), grid, 2)) for grid in (one, other))
    assert all(np.array_equal(a[name], b[name]) for name in MODEL)


def test_the_codec_does_not_change_the_model_and_the_seed_does() -> None:
    def model_of(**options: Any) -> Any:
        return final(run(AdaQuantStrategy(FedAvg(), **options), FakeGrid(clients()), 2))["conv"]

    assert np.array_equal(model_of(codec="fixed"), model_of(codec="sparse"))
    assert not np.array_equal(model_of(seed=1), model_of(seed=2))


def test_a_strategy_with_a_loop_of_its_own_keeps_it() -> None:
    class Own(FedAvg):
        best = 0

        def start(self, grid: Any, initial_arrays: ArrayRecord, num_rounds: int = 3, **options: Any) -> Result:
            self.best += 1
            self.marked = options.pop("mark")
            return super().start(grid, initial_arrays, num_rounds, **options)

    inner = Own()
    result = run(AdaQuantStrategy(inner), FakeGrid(clients()), mark="x")
    assert (inner.best, inner.marked) == (1, "x")
    assert result.train_metrics_clientapp[1]["aq_quantized"] == 4
    assert "configure_train" not in vars(inner)  # as it was


def test_models_without_floats_are_left_alone() -> None:
    trees = {"0": np.arange(9, dtype="u1")}
    result = run(AdaQuantStrategy(FedAvg()), FakeGrid(clients()), model=trees)
    assert "aq_s" not in result.train_metrics_clientapp[1]


def test_a_plan_does_not_outlive_its_round() -> None:
    strategy, config, grid = AdaQuantStrategy(FedAvg()), ConfigRecord(), FakeGrid(clients())
    (first, *_) = strategy.configure_train(1, record(FLOATS), config, grid)
    assert Plan.read(first) is not None
    (second, *_) = strategy.configure_train(2, record({"trees": np.arange(9, dtype="u1")}), config, grid)
    assert Plan.read(second) is None


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
        state = rule.step(state, bits=bits, dimension=d, loss=loss, eta=eta(number))
        chosen.append(state.s)
        bits, loss = bits + aq.paper_bits(d, state.s, scales), after
    return chosen


def test_s_follows_the_papers_rule() -> None:
    strategy, d = AdaQuantStrategy(FedAvg()), 600 + 40 + 40 + 1
    result = run(strategy, Learning(LOSSES), len(LOSSES))
    metrics = [result.train_metrics_clientapp[number] for number in range(1, len(LOSSES) + 1)]
    expected = levels_by_hand(aq.AdaQuant(s0=2), d, 4, lambda _: 1.0)
    assert [m["aq_s"] for m in metrics] == expected
    assert len(set(expected)) > 2
    assert [m["aq_paper_bits"] for m in metrics] == [aq.paper_bits(d, s, 4) for s in expected]
    assert [m["aq_bits_per_element"] for m in metrics] == [s.bit_length() for s in expected]
    assert strategy.state.paper_bits == sum(m["aq_paper_bits"] for m in metrics)
    assert strategy.state.wire_bytes == sum(m["aq_wire_bytes"] for m in metrics)


def test_a_falling_learning_rate_lowers_s_as_in_the_paper() -> None:
    class Decaying(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            config["lr"] = 0.1 * 0.5**server_round
            return super().configure_train(server_round, arrays, config, grid)

    result = run(AdaQuantStrategy(Decaying()), Learning(LOSSES), len(LOSSES))
    chosen = [result.train_metrics_clientapp[number + 1]["aq_s"] for number in range(len(LOSSES))]
    assert chosen == levels_by_hand(aq.AdaQuant(s0=2), 681, 4, lambda number: 0.05 * 0.5**number)


def test_losses_are_weighted_like_the_model_and_useless_ones_left_out() -> None:
    group = clients()
    for client, loss in zip(group, [1.0, 3.0, float("nan"), -1.0], strict=True):
        client.loss = loss
    strategy = AdaQuantStrategy(FedAvg())
    run(strategy, FakeGrid(group))
    assert strategy.state.loss == pytest.approx((10 * 1.0 + 11 * 3.0) / 21)


def test_without_a_loss_s_stays_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    strategy = AdaQuantStrategy(FedAvg(), loss_key="my_loss")
    caplog.set_level("WARNING")
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        run(strategy, FakeGrid(clients()), 8)
    finally:
        logger.removeHandler(caplog.handler)
    assert strategy.state.schedule.s == 2
    assert "as 'my_loss', so that s stays 2" in caplog.text


def test_full_precision_counts_what_it_costs() -> None:
    strategy = AdaQuantStrategy(FedAvg(), schedule=aq.FullPrecision())
    metrics = run(strategy, FakeGrid(clients())).train_metrics_clientapp[1]
    assert metrics["aq_paper_bits"] == 32 * 681
    assert metrics["aq_wire_bytes"] > 4 * (4 * 601 + 2 * 40 + 8 * 40)
    assert (metrics["aq_plain"], "aq_s" in metrics) == (4, False)


def test_bytes_are_those_of_the_replies() -> None:
    grid, sizes = FakeGrid(clients()), []

    def weigh(reply: Message) -> Message:
        data = reply.content["arrays"][NAME].data
        body = struct.unpack_from("<Q", data, data.index(b"AQFL") + 24)[0]
        sizes.append((sum(part.count_bytes() for part in reply.content.values()), body))
        return reply

    grid.tamper = dict.fromkeys(range(4), weigh)
    metrics = run(AdaQuantStrategy(all_of(fraction_evaluate=0.0)), grid).train_metrics_clientapp[1]
    assert metrics["aq_wire_bytes"] == sum(size for size, _ in sizes)
    assert metrics["aq_payload_bytes"] == sum(body for _, body in sizes)


def test_a_saved_state_goes_on_where_it_was() -> None:
    whole = AdaQuantStrategy(FedAvg(), seed=3)
    expected = run(whole, Learning(LOSSES), len(LOSSES))
    first = AdaQuantStrategy(FedAvg(), seed=3)
    half = run(first, Learning(LOSSES), 5)
    saved = json.loads(json.dumps(first.state_dict()))
    second = AdaQuantStrategy(FedAvg(), seed=3)
    second.load_state_dict(saved)
    rest = second.start(Learning(LOSSES[5:]), half.arrays, num_rounds=len(LOSSES) - 5)
    assert all(np.array_equal(final(rest)[name], final(expected)[name]) for name in MODEL)
    assert second.state == whole.state


@pytest.mark.parametrize("state", [{}, {"format": 2}, {"format": 1, "what": 3}])
def test_a_state_that_is_none_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        AdaQuantStrategy(FedAvg()).load_state_dict(state)


# ---------------------------------------------------------------------------------------- what goes wrong


def altered(change: Callable[[bytes], bytes]) -> Callable[[Message], Message]:
    def tamper(reply: Message) -> Message:
        if NAME in reply.content.get("arrays", {}):
            reply.content["arrays"][NAME].data = change(reply.content["arrays"][NAME].data)
        return reply

    return tamper


def reframed(change: Callable[[bytearray], None]) -> Callable[[Message], Message]:
    """Change the frame and make its checksum right again: a client that lies well."""

    def apply(data: bytes) -> bytes:
        start = data.index(b"AQFL")
        frame = bytearray(data[start:-4])
        change(frame)
        return data[:start] + bytes(frame) + struct.pack("<I", zlib.crc32(frame))

    return altered(apply)


def put(position: int, value: bytes) -> Callable[[bytearray], None]:
    def change(frame: bytearray) -> None:
        frame[position : position + len(value)] = value

    return change


def entry(number: int, place: int, dtype: bytes = b"<f4") -> Callable[[bytes], bytes]:
    return lambda data: data[: 12 + 7 * number] + struct.pack("<i3s", place, dtype) + data[19 + 7 * number :]


TAMPERED = {
    "flipped bit": (altered(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]), "checksum"),
    "truncated": (altered(lambda data: data[:-40]), "[Tt]runcated"),
    "nothing": (altered(lambda data: b""), "Truncated"),
    "head only": (altered(lambda data: data[:14]), "Truncated"),
    "many arrays": (altered(lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:]), "Truncated"),
    "dimension": (reframed(put(16, struct.pack("<Q", 99))), "dimension 99, expected 681"),
    "another s": (reframed(put(8, struct.pack("<I", 3))), "plan says s = 2|levels|bits"),
    "place out of range": (altered(entry(0, 77)), "array 77"),
    "place of an integer": (altered(entry(0, 5)), "array 5"),
    "place twice": (altered(entry(0, 1)), "twice"),
    "place as it is": (altered(entry(0, -1)), "another number"),
    "negative place": (altered(entry(0, -5)), "array -5"),
    "object type": (altered(entry(0, 0, b"|O8")), "expected floats"),
    "half type": (altered(entry(0, 0, b"<f1")), "expected floats"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_bad_message_is_refused_and_the_round_goes_on(name: str) -> None:
    tamper, reason = TAMPERED[name]
    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg())
    grid.tamper[1] = tamper
    result = run(strategy, grid)
    metrics = result.train_metrics_clientapp[1]
    assert (metrics["aq_quantized"], metrics["aq_refused"], metrics["aq_refused_frame"]) == (3, 1, 1)
    (refusal,) = strategy.refusals
    assert (refusal.node, refusal.kind) == (1001, "frame")
    assert re.search(reason, refusal.reason), refusal.reason
    alone = FakeGrid(clients())
    alone.tamper[1] = lambda reply: reply if not reply.has_content() else _failed(reply)
    expected = run(AdaQuantStrategy(FedAvg()), alone)
    assert all(np.array_equal(final(result)[name], final(expected)[name]) for name in MODEL)


def _failed(reply: Message) -> Message:
    return make_message(metadata=reply.metadata, error=Error(2, "the client raised"))


def test_a_scale_that_is_not_a_number_is_refused() -> None:
    def poison(frame: bytearray) -> None:
        scales = aq.decode(bytes(frame) + struct.pack("<I", zlib.crc32(frame))).scales
        put(frame.index(scales.tobytes()), struct.pack("<f", float("nan")))(frame)

    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg())
    grid.tamper[2] = reframed(poison)
    assert run(strategy, grid).train_metrics_clientapp[1]["aq_refused_frame"] == 1
    assert "NaN" in strategy.refusals[0].reason


def test_an_update_of_another_version_is_refused() -> None:
    def rename(reply: Message) -> Message:
        if NAME in reply.content.get("arrays", {}):
            reply.content["arrays"][NAME].stype = "adaquantfl.update.v9"
        return reply

    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg())
    grid.tamper[0] = rename
    run(strategy, grid)
    assert "Install the same version" in strategy.refusals[0].reason


def test_an_array_smuggled_in_beside_the_update_is_refused() -> None:
    def smuggle(reply: Message) -> Message:
        if NAME in reply.content.get("arrays", {}):
            reply.content["arrays"]["conv"] = Array(np.full((20, 30), 1e9, "f4"))
        return reply

    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg())
    grid.tamper[0] = smuggle
    run(strategy, grid)
    assert "another number" in strategy.refusals[0].reason


def test_an_update_that_does_not_fit_its_type_is_refused() -> None:
    model = {"w": np.full(100, 60_000, "f2")}  # with one level, steps of 1000 become some of 10,000
    group = [Client(lambda _, array: array + np.float16(1000)), *(Client(lambda _, array: array) for _ in range(3))]
    strategy = AdaQuantStrategy(FedAvg(), schedule=aq.Fixed(bits=1))
    run(strategy, FakeGrid(group), model=model)
    assert "beyond the range of float16" in strategy.refusals[0].reason


def test_errors_pass_as_flower_passes_them() -> None:
    def fail(_: str, array: Any) -> Any:
        raise RuntimeError("out of luck")

    group = clients()
    group[2] = Client(fail)
    metrics = run(AdaQuantStrategy(FedAvg()), FakeGrid(group)).train_metrics_clientapp[1]
    assert (metrics["aq_quantized"], metrics["aq_refused"]) == (3, 0)


def test_a_diverged_client_costs_only_its_own_reply() -> None:
    group = clients()
    group[2] = Client(lambda _, array: array * np.nan if array.dtype.kind == "f" else array)
    result = run(AdaQuantStrategy(FedAvg()), FakeGrid(group))
    assert result.train_metrics_clientapp[1]["aq_quantized"] == 3
    assert all(np.isfinite(array).all() for array in final(result).values())


def test_a_round_without_a_usable_reply_keeps_the_model_and_reports() -> None:
    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg())
    grid.tamper = dict.fromkeys(range(4), altered(lambda data: data[:-1]))
    result = run(strategy, grid)
    assert result.train_metrics_clientapp[1]["aq_refused"] == 4
    assert not result.arrays
    assert strategy.state.paper_bits == 0


@pytest.mark.parametrize("limit", [1.0, "10x"])
@pytest.mark.parametrize("mods", [(), None], ids=["plain", "quantized"])
def test_giants_are_refused_with_or_without_the_mod(limit: float | str, mods: tuple[()] | None) -> None:
    options = {} if mods is None else {"mods": mods}
    group = clients()
    group[3] = Client(lambda _, array: array + array.dtype.type(100), **options)
    strategy = AdaQuantStrategy(FedAvg(), max_update_norm=limit)
    metrics = run(strategy, FakeGrid(group)).train_metrics_clientapp[1]
    assert (metrics["aq_refused_norm"], metrics["aq_refused"]) == (1, 1)
    assert strategy.refusals[0].node == 1003
    assert "norm" in strategy.refusals[0].reason
    assert strategy.state.refused == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_limit_refuses_plain_weights_that_are_not_finite(bad: float) -> None:
    group = clients(mods=())
    group[0] = Client(lambda _, array: array * bad if array.dtype.kind == "f" else array, mods=())
    strategy = AdaQuantStrategy(FedAvg(), max_update_norm="10x")
    assert run(strategy, FakeGrid(group)).train_metrics_clientapp[1]["aq_refused_norm"] == 1


def test_a_limit_sees_weights_that_travel_beside_the_update() -> None:
    def bypass(reply: Message) -> Message:
        """A client that has quantized all arrays but one, and changed that one a lot."""
        trained = record({**MODEL, "double": MODEL["double"] + 100})
        plan = Plan(0, 2, exact=(*EXACT, "double"))
        reply.content["arrays"] = pack(trained, Model(record(MODEL)), plan, client=1)
        return reply

    grid, strategy = FakeGrid(clients()), AdaQuantStrategy(FedAvg(fraction_evaluate=0.0), max_update_norm=10.0)
    grid.tamper[1] = bypass
    metrics = run(strategy, grid).train_metrics_clientapp[1]
    assert (metrics["aq_refused_norm"], metrics["aq_quantized"]) == (1, 3)


def test_wrong_settings_are_refused_with_a_sentence() -> None:
    from flwr.server.strategy import FedAvg as OldFedAvg

    with pytest.raises(ConfigError, match=r"flwr\.serverapp\.strategy, such as FedAvg\(\)"):
        AdaQuantStrategy(OldFedAvg())  # type: ignore[arg-type]
    for error, options in (
        (QuantizeError, {"scope": "layer"}),
        (QuantizeError, {"scope": 0}),
        (QuantizeError, {"seed": "one"}),
        (FrameError, {"codec": "zip"}),
        (ConfigError, {"max_update_norm": "ten"}),
        (ConfigError, {"exact": [3]}),
    ):
        with pytest.raises(error):
            AdaQuantStrategy(FedAvg(), **options)  # type: ignore[arg-type]
