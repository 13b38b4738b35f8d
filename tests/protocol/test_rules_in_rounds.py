"""Rules and quantizers in the rounds of a server: levels as they are planned, chosen, counted and resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.protocol.cohort import Cohort
from adaquantfl.quantizers.balanced import balanced_stretch
from adaquantfl.rules import DAdaQuant, FedDQ
from adaquantfl.rules.registry import BASELINES, methods
from adaquantfl.runs.config import Config, load_config
from support.rounds import EXAMPLES, federation, reply_of
from support.scripted import Scripted

LENGTHS = (3000, 1000)
WITH_LEVELS = ["rotated", "lattice", "eden", "centroid", "natural"]


@pytest.fixture
def update(rng: np.random.Generator) -> np.ndarray:
    return rng.laplace(size=4000).astype(np.float32)


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
@pytest.mark.parametrize("rule", [aq.AdaQuant(interval=1.0), aq.Auto()])
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
        ({"quantizer": "rotated", "scope": "balanced"}, "balanced"),
        ({"rule": 3}, "AdaQuant"),
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
        ({"undo": 5.0, "rule": Scripted()}, "undo"),
        ({"min_clients": 1, "cohort": Cohort((1, 2))}, "cohort"),
    ],
)
def test_settings_of_a_server_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(aq.ConfigError, match=says):
        aq.Server(np.zeros(3, np.float32), **settings)
