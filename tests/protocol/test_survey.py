"""What clients say about other levels is what those levels do; rules that need it get it, whoever answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol import survey
from adaquantfl.protocol.arrays import Layout
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.protocol.messages import Order, Reply
from adaquantfl.protocol.uplink import levels_for
from adaquantfl.quantizers.balanced import balanced_stretch
from adaquantfl.quantizers.base import Count, norm_of
from adaquantfl.quantizers.registry import find
from adaquantfl.rules import CostAware, DAdaQuant, FedDQ
from adaquantfl.rules.cost_aware import SURVEY_STEPS
from adaquantfl.rules.registry import BASELINES, methods
from adaquantfl.runs.config import Config, load_config
from support.rounds import EXAMPLES, federation, reply_of

LENGTHS = (3000, 1000)
LAYOUT = Layout.of({"weight": np.zeros((50, 60), dtype=np.float32), "bias": np.zeros(1000, dtype=np.float32)})
CANDIDATES = len(SURVEY_STEPS)
WITH_LEVELS = ["rotated", "lattice", "eden", "centroid", "natural"]


@pytest.fixture
def update(rng: np.random.Generator) -> np.ndarray:
    return rng.laplace(size=4000).astype(np.float32)


def order(candidates: tuple[float, ...], quantizer: str = "uniform", balanced: bool = False) -> Order:
    kind = find(quantizer)
    return Order(0, 1, 0.1, 5, quantizer=kind.tags[norm_of(kind, None)], balanced=balanced, candidates=candidates)


WRITTEN = 0.0004  # how far a number in a survey may be off, as a share of it: half of 1/1024 of a binary logarithm


def entry(update: np.ndarray, asked: Order) -> tuple[float, float]:
    """Error and bytes of the only candidate."""
    seen = survey.read(survey.take(update, asked, LAYOUT, 1.0, 0.0), 1)
    (error,), (size,) = seen.errors, seen.sizes
    return float(error), float(size)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("s", [0.4, 1.0, 6.5])
def test_a_survey_has_the_exact_variance_and_the_size_of_the_very_frame(
    update: np.ndarray, s: float, balanced: bool
) -> None:
    """A false alarm beyond 5 standard errors of 200 draws has probability below 1e-5."""
    asked = order((s,), balanced=balanced)
    error, size = entry(update, asked)
    whole, stretch = levels_for(find("uniform"), asked, Count(s), LENGTHS, update)
    assert whole is not None
    frame = aq.compress(update, whole, 5, "auto", LENGTHS, stretch, known=asked.known(LENGTHS))
    assert size == pytest.approx(len(frame), rel=WRITTEN)
    square = np.sum(update.astype(np.float64) ** 2)
    errors = [
        np.sum((aq.quantize(update, whole, key, LENGTHS, stretch).dequantize() - update.astype(np.float64)) ** 2)
        for key in range(200)
    ]
    spread = np.std(errors) / np.sqrt(len(errors)) / square
    assert abs(np.mean(errors) / square - error) <= 5 * spread + WRITTEN * error


@pytest.mark.parametrize("quantizer", WITH_LEVELS)
def test_a_survey_of_another_quantizer_is_of_its_own_frames(update: np.ndarray, quantizer: str) -> None:
    asked = order((2.0,), quantizer)
    error, size = entry(update, asked)
    kind = find(quantizer)
    s, stretch = kind.levels_for(Count(2.0), np.array(LENGTHS), update)
    levels = aq.quantize(update, s, 5, LENGTHS, stretch, kind)
    true = np.sum((levels.dequantize() - update.astype(np.float64)) ** 2) / np.sum(update.astype(np.float64) ** 2)
    frame = aq.encode(levels, known=asked.known(LENGTHS))
    assert size == pytest.approx(len(frame), rel=WRITTEN)
    assert error == pytest.approx(true, rel=WRITTEN + 1e-4)


@pytest.mark.parametrize("update", [np.zeros(4000, np.float32), np.full(4000, 1e-30, np.float32)])
def test_an_update_without_error_is_surveyed_too(update: np.ndarray) -> None:
    error, size = entry(update, order((2.0,)))
    assert 0 < error < np.inf
    assert size > 4 * len(LENGTHS), "every tensor has a scale"


def test_balanced_levels_send_as_many_nonzeros_as_equal_ones_and_more_of_small_tensors(update: np.ndarray) -> None:
    s, stretch = balanced_stretch(update, 0.5, np.array(LENGTHS))
    levels = s / stretch
    spread = [np.abs(part).sum() / np.linalg.norm(part) for part in np.split(update, LENGTHS[:1])]
    assert levels @ spread == pytest.approx(0.5 * sum(spread), rel=1e-5)
    assert levels[1] / levels[0] == pytest.approx((spread[0] / spread[1]) ** 0.5, rel=1e-5)


def test_balanced_levels_of_zeros_are_harmless() -> None:
    x = np.zeros(10, dtype=np.float32)
    s, stretch = balanced_stretch(x, 0.5, [4, 6])
    assert not aq.quantize(x, s, 1, [4, 6], stretch).dequantize().any()


@pytest.mark.parametrize("size", [0, 11, 13, 16])
def test_a_survey_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(aq.FrameError, match="survey"):
        survey.read(bytes(size), 1)


@pytest.mark.parametrize("entries", [b"\x00\x80" * 2, b"\xff\x7f" * 2])
def test_every_survey_of_the_right_length_has_numbers_above_0(entries: bytes) -> None:
    seen = survey.read(bytes(8) + entries, 1)
    for (number,) in (seen.errors, seen.sizes):
        assert 2.0**-33 < number < 2.0**33


def test_errors_are_weighted_like_updates() -> None:
    one, two = ((np.array([error]), np.array([size])) for error, size in ((1.0, 100.0), (4.0, 300.0)))
    seen = {0: survey.ClientSurvey(1.0, 0.1, *one), 5: survey.ClientSurvey(4.0, 0.4, *two)}
    merged, _ = survey.merge((2.0,), seen, {0: 0.2, 5: 0.1})
    assert merged.errors == pytest.approx((2.0,))
    assert merged.costs == (200.0,)
    assert (merged.loss, merged.harm) == pytest.approx((2.0, 0.2))


def test_a_loss_that_is_no_number_is_harm_without_end() -> None:
    assert survey.read(np.array([np.nan, np.nan], "<f4").tobytes() + bytes(4), 1).harm == math.inf


def test_harm_is_what_the_noise_of_all_clients_does_to_the_loss() -> None:
    harms, losses = [], []
    for s in (0.05, 500.0):
        run = federation(2000, rule=CostAware(s0=s))
        run.play()
        seen = [survey.read(Reply.unpack(reply).survey, CANDIDATES) for reply in run.replies.values()]
        harms.append(np.mean([one.harm for one in seen]))
        losses.append([one.loss for one in seen])
    assert losses[0] == losses[1]
    assert harms[0] > 10 * abs(harms[1])


def test_a_client_without_a_probe_reports_no_harm() -> None:
    server, client = aq.Server(np.zeros(9, np.float32), rule=CostAware()), aq.Client(0)
    reply = client.reply(client.open(server.open([0])[0]) + 1, loss=0.75)
    seen = survey.read(Reply.unpack(reply).survey, CANDIDATES)
    assert (seen.loss, seen.harm) == (0.75, 0.0)


@pytest.mark.parametrize(("cost", "price"), [("up", 1), ("both", 2), (lambda up, down: 3 * up, 3)])
def test_a_round_costs_what_the_setting_counts(cost: Any, price: int) -> None:
    run = federation(rule=CostAware(s0=2.0), cost=cost, downlink="model")
    run.play()
    merged = run.server.current.survey
    assert merged is not None
    replies = [Reply.unpack(reply) for reply in run.replies.values()]
    entries = np.array([survey.read(reply.survey, CANDIDATES).sizes for reply in replies])
    up = entries.mean(axis=0) + np.mean([reply.priced_bytes for reply in replies])
    if price == 2:
        orders = federation(downlink="model").server.open().values()
        down = np.mean([len(Order.unpack(order).parcel) for order in orders])
        assert merged.costs == pytest.approx(up + down + 16)  # and the plan: round, s and eta
    else:
        assert merged.costs == pytest.approx(price * up)


def test_the_cost_aware_rule_hears_of_its_round_and_chooses_anew() -> None:
    run = federation(2000, rule=CostAware(s0=8.0, every=2, delay=0))
    for _ in range(6):
        run.play()
    asked = [state.survey is not None for state in run.states[1:]]
    assert asked[:4] == [True] * 4
    assert asked[5], "every second round; sooner while s moves far"
    assert run.server.current.rule["started"]
    assert run.server.current.rule["s"] != 8.0


@pytest.mark.parametrize("method", [name for name in methods() if name not in BASELINES or name == "4bit"])
def test_every_rule_goes_on_from_a_written_down_state(method: str) -> None:
    config = Config(rule=method, quantizer={"norm": "linf" if method == "feddq" else ""})
    whole, cut = (federation(rule=config.make_rule(), norm=config.quantizer["norm"]) for _ in range(2))
    for _ in range(5):
        whole.play()
        cut.play()
        cut.server = aq.Server.restore(cut.server.state())
    assert cut.lines == whole.lines
    assert cut.server.weights.tobytes() == whole.server.weights.tobytes()


def test_levels_of_the_clients_own_are_counted_as_they_are() -> None:
    rule = DAdaQuant(s0=4, time=False)
    line = federation(rule=rule).play()
    weights = dict(enumerate(np.array(EXAMPLES) / sum(EXAMPLES)))
    levels = rule.plan(rule.init(), aq.Seen(bits=0, dimension=60, weights=weights))[1].levels
    assert isinstance(levels, dict)
    assert len(set(levels.values())) > 1
    assert line["s"] == pytest.approx(np.mean(list(levels.values())))
    assert line["paper_bits"] == round(np.mean([aq.paper_bits(60, int(s)) for s in levels.values()]))


def test_clients_that_choose_from_their_updates_are_counted_as_they_chose() -> None:
    run = federation(rule=FedDQ(resolution=0.05))
    line = run.play()
    levels = [aq.decode(run.frame(client)).s for client in run.replies]
    assert line["s"] == pytest.approx(np.mean(levels))
    assert line["paper_bits"] == round(np.mean([aq.paper_bits(60, s) for s in levels]))


def test_a_rule_gives_levels_by_the_sizes_that_clients_named_where_it_knows_no_others() -> None:
    server = aq.Server(np.zeros(9, np.float32), rule=DAdaQuant(s0=8, time=False))
    clients = [aq.Client(0), aq.Client(1)]
    seen = []
    for _ in range(2):
        for number, order in server.open([0, 1]).items():
            weights = clients[number].open(order)
            server.receive(number, clients[number].reply(weights + 1, loss=1.0, examples=[10, 90][number]))
            seen.append(clients[number].order.s)
        server.close()
    assert seen[0] == seen[1] == 8
    assert seen[2] < 8 < seen[3]


@pytest.mark.parametrize("quantizer", WITH_LEVELS)
@pytest.mark.parametrize("rule", [aq.AdaQuant(interval=1.0), CostAware(every=1)])
def test_a_rule_drives_every_quantizer_that_has_levels(quantizer: str, rule: aq.Rule) -> None:
    run = federation(cohort=Cohort(EXAMPLES), rule=rule, quantizer=quantizer)
    for _ in range(4):
        assert "missing" not in run.play(loss=run.global_loss())
    assert np.isfinite(run.global_loss())


@pytest.mark.parametrize("quantizer", ["stc", "nearest"])
def test_what_is_left_out_is_kept_and_comes_with_the_next_update(quantizer: str) -> None:
    server = aq.Server(np.zeros(2000, np.float32), rule=aq.Fixed(bits=1), quantizer=quantizer, sparsity=50)
    client, update = aq.Client(0), np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    before: np.ndarray | float = 0.0
    for _ in range(3):
        reply = client.reply(client.open(server.open([0])[0]) + update, loss=1.0)
        sent = aq.decode(reply_of(client, reply).frame).dequantize()
        after = client.state()["remainder"]["value"]
        assert np.abs(after).max() > 0
        np.testing.assert_allclose(sent + after, update + before, atol=1e-5)
        before = after
        server.receive(0, reply)
        server.close()


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
        ({"quantizer": "nearest", "rule": CostAware()}, "unbiased"),
        ({"quantizer": "rotated", "scope": "balanced"}, "balanced"),
        ({"rule": 3}, "AdaQuant"),
        ({"cost": "money"}, "'both'"),
        ({"downlink": "exct"}, "Did you mean 'exact'"),
        ({"step": "summ"}, "Did you mean 'sum'"),
        ({"max_update_norm": "ten"}, "'10x'"),
        ({"max_update_norm": [3]}, "norm"),
        ({"downlink": 5}, "downlink"),
        ({"step": aq.Median}, "step"),
        ({"max_examples": "ten"}, "examples"),
        ({"max_examples": 0.5}, "examples"),
        ({"loss_smoothing": 7}, "smoothing"),
        ({"min_clients": -1}, "clients"),
        ({"undo": 0.5}, "undo"),
        ({"undo": 5.0, "rule": CostAware()}, "undo"),
        ({"min_clients": 1, "cohort": Cohort((1, 2))}, "cohort"),
    ],
)
def test_settings_of_a_server_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(aq.ConfigError, match=says):
        aq.Server(np.zeros(3, np.float32), **settings)


@pytest.mark.parametrize(("loss", "harm"), [(np.inf, 0.1), (np.nan, 0.1), (1e39, 0.1), (1.0, np.nan), (1.0, -np.inf)])
def test_a_measurement_that_failed_is_infinite_harm(update: np.ndarray, loss: float, harm: float) -> None:
    """Not none: an infinite loss would make any harm a share of 0, and the rule would take the coarsest levels."""
    seen = survey.read(survey.take(update, order((1.0,)), LAYOUT, loss, harm), 1)
    assert seen.harm == np.inf
