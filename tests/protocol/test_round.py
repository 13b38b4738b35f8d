"""A round is the paper's equations, the ledger counts what was sent, and rules are counted and resumed as they plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.codecs.raw import frame_size
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order
from adaquantfl.quantizers.balanced import balanced_stretch
from adaquantfl.rules import DAdaQuant, FedDQ
from adaquantfl.rules.registry import BASELINES, methods
from adaquantfl.runs.config import Config, load_config
from support.rounds import EXAMPLES, federation, reply_of

P = np.array(EXAMPLES) / sum(EXAMPLES)
NAMED = {
    "weight": np.zeros((6, 8), dtype=np.float32),
    "bias": np.zeros(6, dtype=np.float32),
    "bn.running_mean": np.zeros(6, dtype=np.float32),
    "bn.num_batches_tracked": np.array(0),
}


@pytest.mark.parametrize("rule", [aq.AdaQuant(s0=2), aq.FullPrecision()])
def test_the_model_moves_by_the_weighted_sum_of_quantized_updates(rule: aq.Rule) -> None:
    run = federation(rule=rule)
    for _ in range(3):
        before, line = run.server.weights, run.play()
        expected = before.astype(np.float64)
        for client, p in enumerate(P):
            frame = run.frame(client)
            assert line["s"] is None or aq.decode(frame).s == line["s"]
            expected += p * (aq.decode_float32(frame) if line["s"] is None else aq.decode(frame).dequantize())
        np.testing.assert_allclose(run.server.weights, expected, rtol=1e-5, atol=1e-6)


def test_clients_weigh_by_the_examples_that_they_name_where_nothing_else_is_known() -> None:
    server = aq.Server(np.zeros(2, dtype=np.float32), rule=aq.FullPrecision())
    for number, order in server.open([3, 7]).items():
        client = aq.Client(number)
        server.receive(number, client.reply(client.open(order) + number, loss=float(number), examples=10 * number))
    closed = server.close()
    assert closed.facts["round_loss"] == pytest.approx(0.3 * 3 + 0.7 * 7)
    np.testing.assert_allclose(closed.weights, [5.8, 5.8], rtol=1e-6)


def test_the_ledger_adds_up_formula_bits_and_real_bytes() -> None:
    run = federation({name: NAMED[name] for name in ("weight", "bias")}, downlink="model")
    d, bits, up, down = 54, 0, 4 * 3, 0  # f_i(w_0), once, for the first interval
    for k in range(3):
        down += sum(map(len, aq.Server.restore(run.server.state()).open().values()))
        line = run.play(loss=run.global_loss())
        bits += aq.paper_bits(d, line["s"], 2)
        up += sum(map(len, run.replies.values()))
        assert (line["paper_bits"], line["wire_bytes_up"], line["wire_bytes_down"]) == (bits, up, down)
        assert down > line["payload_bytes_down"] == (k + 1) * 3 * 4 * d < (k + 1) * 3 * frame_size(d)
        assert 0 < line["payload_bytes_up"] < line["wire_bytes_up"]
    assert line["bits_per_element"] == 2


@pytest.mark.parametrize(("scope", "scales"), [("whole", 1), (25, 3), ("tensor", 1)])
def test_every_scope_counts_its_norms(scope: str | int, scales: int) -> None:
    assert federation(rule=aq.Fixed(bits=4), scope=scope).play()["paper_bits"] == aq.paper_bits(60, 15, scales)


@pytest.mark.parametrize("given", [True, False])
def test_s_rises_as_the_loss_falls(given: bool) -> None:
    """f(w_k) where it is given, or else the mean loss of the last round."""
    run = federation(rule=aq.AdaQuant(s0=8, interval=1.0, rounding="nearest"))
    losses, levels = list[float](), list[float]()
    for _ in range(8):
        if given:
            losses.append(run.global_loss())
        line = run.play(loss=losses[-1] if given else None, eta=0.4)
        levels.append(line["s"])
        if not given:
            losses.append(line["round_loss"])
    expected = [max(8, round(8 * np.sqrt(losses[0] / loss))) for loss in losses]
    assert levels == (expected if given else [8, *expected[:-1]])
    assert levels[-1] > 8


def test_buffers_are_averaged_and_counted_but_not_quantized() -> None:
    run = federation(NAMED, rule=aq.Fixed(bits=8), downlink="exact")
    line = run.play()
    replies = [reply_of(run.clients[client], run.replies[client]) for client in range(3)]
    mean = sum(p * aq.decode_float32(reply.buffers) for p, reply in zip(P, replies, strict=True))
    np.testing.assert_allclose(run.server.weights["bn.running_mean"], mean, rtol=1e-5)
    assert np.abs(mean).min() > 0
    assert line["paper_bits"] == aq.paper_bits(54, 255, 2)  # buffers are not in the paper's count
    for client in run.clients:  # the next order brings them along
        opened = client.open(run.server.order(client.number, evaluate=True))
        assert all(opened[name].tobytes() == array.tobytes() for name, array in run.server.weights.items())


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (np.int64, (2**53 + 1,) * 3, 2**53 + 1),
        (np.int64, (2**53 - 1, 2**53 - 3, 2**53 - 5), 2**53 - 3),
        (np.uint64, (2**64 - 1, 2**64 - 1, 2**64 - 4097), 2**64 - 2048),  # beyond 2^53 as float64 rounds it
        (np.int8, (1, 2, 9), 4),
    ],
)
def test_integers_are_averaged_and_equal_ones_stay(dtype: type, values: tuple[int, ...], expected: int) -> None:
    server = aq.Server({"w": np.zeros(4, np.float32), "n": np.array([0], dtype=dtype)})
    for number, order in server.open(range(3)).items():
        end = aq.Client(number)
        weights: Any = end.open(order)
        server.receive(number, end.reply({**weights, "n": np.array([values[number]], dtype=dtype)}, loss=1.0))
    after: Any = server.close().weights
    assert (after["n"].tolist(), after["n"].dtype) == ([expected], dtype)


def test_every_client_and_round_has_a_stream_of_its_own() -> None:
    run, keys = federation(), list[int]()
    for _ in range(3):
        keys += [Order.unpack(order).key for order in run.server.open().values()]
        run.server.return_to(run.states[-1])
        run.play()
    assert len(set(keys)) == 9


# ------------------------------------------------------------------------------------------- rules in rounds


def test_balanced_levels_send_as_many_nonzeros_as_equal_ones_and_more_of_small_tensors(
    rng: np.random.Generator,
) -> None:
    update, lengths = rng.laplace(size=4000).astype(np.float32), (3000, 1000)
    s, stretch = balanced_stretch(update, 0.5, np.array(lengths))
    levels = s / stretch
    spread = [np.abs(part).sum() / np.linalg.norm(part) for part in np.split(update, lengths[:1])]
    assert levels @ spread == pytest.approx(0.5 * sum(spread), rel=1e-5)
    assert levels[1] / levels[0] == pytest.approx((spread[0] / spread[1]) ** 0.5, rel=1e-5)
    s, stretch = balanced_stretch(np.zeros(10, np.float32), 0.5, [4, 6])
    assert not aq.quantize(np.zeros(10, np.float32), s, 1, [4, 6], stretch).dequantize().any()


@pytest.mark.parametrize("method", [name for name in methods() if name not in BASELINES])
def test_every_rule_resumes_from_a_written_down_state(method: str) -> None:
    config = Config(rule=method, quantizer={"norm": "linf" if method == "feddq" else ""})
    whole, cut = (federation(rule=config.make_rule(), norm=config.quantizer["norm"]) for _ in range(2))
    for _ in range(5):
        whole.play()
        cut.play()
        cut.server = aq.Server.restore(cut.server.state())
    assert cut.lines == whole.lines
    assert cut.server.weights.tobytes() == whole.server.weights.tobytes()


@pytest.mark.parametrize("rule", [DAdaQuant(s0=4, time=False), FedDQ(resolution=0.05)])
def test_levels_that_differ_between_clients_are_counted_as_they_are(rule: aq.Rule) -> None:
    run = federation(rule=rule)
    line, levels = run.play(), [aq.decode(run.frame(client)).s for client in range(3)]
    assert len(set(levels)) > 1
    assert line["s"] == pytest.approx(np.mean(levels))
    assert line["paper_bits"] == round(np.mean([aq.paper_bits(60, s) for s in levels]))


def test_a_rule_gives_levels_by_the_sizes_that_clients_named_where_it_knows_no_others() -> None:
    server, seen = aq.Server(np.zeros(9, np.float32), rule=DAdaQuant(s0=8, time=False)), list[Any]()
    for _ in range(2):
        for number, order in server.open([0, 1]).items():
            client = aq.Client(number)
            reply = client.reply(client.open(server.order(number, holds=None)) + 1, 1.0, [10, 90][number])
            server.receive(number, reply)
            seen.append(Order.unpack(order).s)
        server.close()
    assert seen[0] == seen[1] == 8
    assert seen[2] < 8 < seen[3]


@pytest.mark.parametrize("quantizer", ["rotated", "lattice", "eden", "centroid", "natural"])
@pytest.mark.parametrize("rule", [aq.AdaQuant(interval=1.0), aq.Auto()])
def test_a_rule_drives_every_quantizer_that_has_levels(quantizer: str, rule: aq.Rule) -> None:
    run = federation(cohort=Cohort(EXAMPLES), rule=rule, quantizer=quantizer)
    for _ in range(3):
        assert "missing" not in run.play(loss=run.global_loss())
    assert np.isfinite(run.global_loss())


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"quantizer": "latice"}, "lattice"),
        ({"quantizer": "eden", "quantizer.norm": "l2"}, "norm"),
        ({"quantizer": "stc"}, "1bit"),
        ({"rule": "feddq"}, "linf"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(keys: dict[str, str], says: str) -> None:
    with pytest.raises(aq.ConfigError, match=says):
        load_config("demo", keys)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"quantizer": "rotated", "scope": "balanced"}, "balanced"),
        ({"rule": 3}, "rule = 3: expected a name"),
        ({"downlink": "exct"}, "Did you mean 'exact'"),
        ({"step": aq.Median}, "step"),
        ({"max_update_norm": "ten"}, "'10x'"),
        ({"max_update_norm": "0.5x"}, "'10x'"),
        ({"max_update_norm": [3]}, "norm"),
        ({"norm_action": "clib"}, "clip"),
        ({"max_examples": 0.5}, "examples"),
        ({"loss_smoothing": 7}, "smoothing"),
        ({"min_clients": -1}, "clients"),
        ({"undo": 0.5}, "undo"),
        ({"averages": 1}, "averages"),
        ({"min_clients": 1, "cohort": Cohort((1, 2))}, "cohort"),
        ({"secrets": {3: b""}}, "The secret of client 3"),
        ({"secrets": {3: "text"}}, "The secret of client 3"),
    ],
)
def test_settings_of_a_server_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(aq.ConfigError, match=says):
        aq.Server(np.zeros(3, np.float32), **settings)
