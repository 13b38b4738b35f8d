"""What clients say about other levels is what those levels do; rules that need it get it, whoever answers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from adaquantfl.protocol.levels import levels_of

import adaquantfl as aq
from adaquantfl.engines.flower import records
from adaquantfl.engines.gloo import messages as gloo
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import server, survey
from adaquantfl.protocol.messages import Plan, Reply
from adaquantfl.quantizers.balanced import balanced_stretch
from adaquantfl.quantizers.registry import find
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config, Link, load_config
from adaquantfl.runs.link import Heard, round_cost

SEGMENTS = np.array([3000, 1000], dtype=np.int64)


@pytest.fixture
def update(rng: np.random.Generator) -> np.ndarray:
    return rng.laplace(size=4000).astype(np.float32)


def small(**changes: object) -> Config:
    return load_config("demo", {"model": "mlp", "clients": 3, "tau": 2, "workers": 1, "loss_samples": 32, **changes})


@pytest.mark.parametrize("scope", ["tensor", "balanced"])
@pytest.mark.parametrize("s", [0.4, 1.0, 6.5])
def test_a_survey_has_the_exact_variance_and_the_size_of_the_very_frame(
    update: np.ndarray, s: float, scope: str
) -> None:
    config = Config(scope=scope)
    (entry,) = survey.read(survey.look(update, [s], 5, config, SEGMENTS), 1).entries
    whole, stretch = levels_of(update, s, SEGMENTS, config)
    assert entry["size"] == len(aq.compress(update, whole, 5, "auto", SEGMENTS, stretch))
    square = np.sum(update.astype(np.float64) ** 2)
    errors = [
        np.sum((aq.quantize(update, whole, key, SEGMENTS, stretch).dequantize() - update.astype(np.float64)) ** 2)
        for key in range(200)
    ]
    spread = np.std(errors) / np.sqrt(len(errors)) / square
    assert abs(np.mean(errors) / square - entry["error"]) <= 5 * spread


def test_balanced_levels_send_as_many_nonzeros_as_equal_ones_and_more_of_small_tensors(update: np.ndarray) -> None:
    s, stretch = balanced_stretch(update, 0.5, SEGMENTS)
    levels = s / stretch
    spread = [np.abs(part).sum() / np.linalg.norm(part) for part in np.split(update, SEGMENTS[:1])]
    assert levels @ spread == pytest.approx(0.5 * sum(spread), rel=1e-5)
    assert levels[1] / levels[0] == pytest.approx((spread[0] / spread[1]) ** 0.5, rel=1e-5)


def test_balanced_levels_of_zeros_are_harmless() -> None:
    x = np.zeros(10, dtype=np.float32)
    s, stretch = balanced_stretch(x, 0.5, [4, 6])
    assert not aq.quantize(x, s, 1, [4, 6], stretch).dequantize().any()


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 17, *(np.array([0, 0, bad, 1], "<f4").tobytes() for bad in (np.nan, -1))]
)
def test_a_survey_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(aq.FrameError, match="survey"):
        survey.read(data, 1)


def test_errors_are_weighted_like_updates() -> None:
    one, two = (np.array([(e, n)], dtype=[("error", "<f4"), ("size", "<u4")]) for e, n in ((1.0, 100), (4.0, 300)))
    seen = {0: survey.Seen(1.0, 0.1, one), 5: survey.Seen(4.0, 0.4, two)}
    merged = survey.merge((2.0,), seen, {0: 0.2, 5: 0.1})
    assert merged.errors == pytest.approx((2.0,))
    assert merged.costs == (200.0,)
    assert (merged.loss, merged.harm) == pytest.approx((2.0, 0.2))


def test_a_loss_that_is_no_number_is_harm_without_end() -> None:
    entries = np.zeros(1, dtype=[("error", "<f4"), ("size", "<u4")]).tobytes()
    assert survey.read(np.array([np.nan, np.nan], "<f4").tobytes() + entries, 1).harm == math.inf


def test_harm_is_what_the_noise_of_all_clients_does_to_the_loss() -> None:
    config = small(method="cost-aware", batch_size=32)
    engine = LocalEngine(config)
    model = engine.federation.model
    coarse, fine = (
        [survey.read(reply.survey, 5) for reply in engine.train(model, Plan(0, s, 0.1, survey=True))]
        for s in (0.05, 500.0)
    )
    engine.close()
    assert [one.loss for one in coarse] == [one.loss for one in fine]
    assert np.mean([one.harm for one in coarse]) > 10 * abs(np.mean([one.harm for one in fine]))


def test_a_survey_travels_on_every_engine() -> None:
    plan = Plan(3, 0.7, 0.1, survey=True)
    call = ("train", (1, plan))
    assert gloo.decode_call(gloo.encode_call(9, call), 1).call == call
    assert records._call(records._plain_call(call)) == call
    reply = Reply(1, b"frame", b"buffers", 0.5, 1.0, 2.0, b"survey")
    header, body = gloo.encode_answer(9, call, reply)
    assert gloo.decode_answer(header, 9, call, 1000).answer(1, body) == reply
    assert records.read_answers(records.write_answers([reply]), [call]) == [reply]
    assert reply.wire_bytes == len(b"framebufferssurvey") + 4


def test_a_round_costs_what_the_configuration_counts() -> None:
    heard = [Heard(0, 1000, 2.0, 0.5)]
    assert round_cost(small(), 1000, 9000, heard) == 1000
    assert round_cost(small(cost="both"), 1000, 9000, heard) == 10_000
    timed = replace(small(cost="time"), link=Link(up_mbps=8.0, down_mbps=80.0, latency_ms=10.0))
    assert round_cost(timed, 1_000_000, 1_000_000, heard) == pytest.approx(1.0 + 0.1 + 0.02 + 2.5)


def test_the_cost_aware_rule_hears_of_its_round_and_chooses_anew(tmp_path: Path) -> None:
    config = small(method="cost-aware", survey_every=2, rounds=6)
    engine = LocalEngine(config)
    state, asked = server.start(config, engine), []
    for _ in range(6):
        state, line = server.play_round(state, config, engine)
        state, _ = server.evaluate(state, line, config, engine)
        asked.append(state.survey is not None)
    assert asked == [True, True, False, True, False, True]
    assert state.schedule.memory["mu"] > 0
    assert state.schedule.s != config.schedule().init().s
    engine.close()


@pytest.mark.parametrize("method", ["cost-aware", "dadaquant", "fixed-step", "cosine", "adaquant-smooth"])
def test_every_rule_resumes_to_the_same_model(method: str, tmp_path: Path) -> None:
    config = small(method=method, rounds=6, survey_every=2, checkpoint_every=2, partition="dirichlet(0.5)")
    whole = runner.run(config, tmp_path / "whole")

    class Enough(Exception):
        pass

    def stop(_: object, state: server.RunState, line: object) -> None:
        if state.round == 3:
            raise Enough

    with pytest.raises(Enough):
        runner.run(config, tmp_path / "cut", stop)
    assert runner.resume(tmp_path / "cut")["model_sha256"] == whole["model_sha256"]


def test_levels_of_the_clients_own_are_counted_as_they_are() -> None:
    config = small(method="dadaquant-clients", rule_s0=4.0, partition="dirichlet(0.2)")
    engine = LocalEngine(config)
    state, line = server.play_round(server.start(config, engine), config, engine)
    engine.close()
    weights, tensors = engine.federation.weights, len(engine.federation.tensors)
    levels = [config.schedule().client_levels(4, weights, i, np.zeros(1, np.float32)) for i in range(3)]
    assert len(set(levels)) > 1
    bits = [aq.paper_bits(engine.federation.dimension, int(s), tensors) for s in levels]
    assert line["s"] == pytest.approx(np.mean(levels))
    assert state.ledger.paper_bits == round(np.mean(bits))


@pytest.mark.parametrize("quantizer", ["dithered", "rotated", "lattice", "eden", "centroid", "natural"])
def test_a_survey_of_another_quantizer_is_of_its_own_frames(update: np.ndarray, quantizer: str) -> None:
    config = Config(quantizer=quantizer)
    (entry,) = survey.read(survey.look(update, [2.0], 5, config, SEGMENTS), 1).entries
    s, stretch = find(quantizer).levels_for(2.0, SEGMENTS)
    levels = aq.quantize(update, s, 5, SEGMENTS, stretch, quantizer)
    error = np.sum((levels.dequantize() - update.astype(np.float64)) ** 2) / np.sum(update.astype(np.float64) ** 2)
    assert entry["size"] == len(aq.encode(levels))
    assert entry["error"] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("quantizer", ["dithered", "rotated", "lattice", "eden", "centroid", "natural"])
@pytest.mark.parametrize("method", ["adaquant", "cost-aware"])
def test_a_rule_drives_every_quantizer_that_has_levels(quantizer: str, method: str) -> None:
    config = small(quantizer=quantizer, method=method, survey_every=1, interval=1.0)
    engine = LocalEngine(config)
    state = server.start(config, engine)
    for _ in range(4):
        state, line = server.play_round(state, config, engine)
        state, _ = server.evaluate(state, line, config, engine)
        assert not line.get("missing")
    engine.close()
    assert np.isfinite(state.latest.loss)


@pytest.mark.parametrize("quantizer", ["stc", "nearest"])
def test_what_is_left_out_is_kept_and_comes_with_the_next_update(quantizer: str) -> None:
    config = small(quantizer=quantizer, method="1bit", sparsity=50)
    engine = LocalEngine(config)
    update = np.random.default_rng(0).standard_normal(engine.federation.dimension).astype(np.float32)
    before: np.ndarray | float = 0.0
    for round in range(3):
        sent = aq.decode(engine.trainer._encode(update, 1, Plan(round, 1, 0.1))).dequantize()
        after = engine.kept()[1]
        assert np.abs(after).max() > 0
        np.testing.assert_allclose(sent + after, update + before, atol=1e-5)
        before = after
    engine.close()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"quantizer": "dither"}, "dithered"),
        ({"quantizer": "eden", "norm": "l2"}, "norm"),
        ({"quantizer": "stc"}, "1bit"),
        ({"quantizer": "nearest", "method": "cost-aware"}, "unbiased"),
        ({"quantizer": "rotated", "scope": "balanced"}, "balanced"),
        ({"method": "feddq"}, "linf"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(keys: dict[str, str], says: str) -> None:
    with pytest.raises(aq.ConfigError, match=says):
        Config(**keys)  # type: ignore[arg-type]
