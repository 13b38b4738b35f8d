"""A round with clients that fail: the others' mean, the reasons in the history, a sentence where too few are left."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import adaquantfl as aq
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import server
from adaquantfl.protocol.messages import Absence, Model, Plan, Reply
from adaquantfl.runs.config import Config

Spoil = Callable[[Reply], Reply | Absence]


class Spoiled(LocalEngine):
    """The local engine, with one client's reply replaced."""

    def __init__(self, config: Config, spoil: Spoil) -> None:
        super().__init__(config)
        self._spoil = spoil

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply | Absence]:
        for reply in super().train(model, plan, clients):
            yield self._spoil(reply) if reply.client == 1 else reply


def frame_of(x: np.ndarray, s: int = 2) -> bytes:
    return aq.compress(x.astype(np.float32), s=s, key=0)


def altered(frame: bytes) -> bytes:
    middle = len(frame) // 2
    return frame[:middle] + bytes([frame[middle] ^ 1]) + frame[middle + 1 :]


def with_nan_scale(frame: bytes) -> bytes:
    """A frame with a good checksum and its last scale replaced by NaN."""
    scales = aq.decode(frame).scales
    place = frame.index(struct.pack("<f", scales[-1]))
    changed = frame[:place] + struct.pack("<f", float("nan")) + frame[place + 4 : -4]
    return changed + struct.pack("<I", zlib.crc32(changed))


FAULTS: dict[str, tuple[Spoil, str]] = {
    "absent": (lambda r: Absence(r.client, "killed by signal 9."), "killed by signal 9"),
    "corrupt": (lambda r: replace(r, frame=altered(r.frame)), "checksum"),
    "truncated": (lambda r: replace(r, frame=r.frame[:-9]), "truncated or altered"),
    "empty": (lambda r: replace(r, frame=b""), "Truncated"),
    "wrong dimension": (lambda r: replace(r, frame=frame_of(np.ones(7))), "dimension"),
    "NaN scale": (lambda r: replace(r, frame=with_nan_scale(r.frame)), "scale is negative, NaN"),
    "another s": (lambda r: replace(r, frame=frame_of(np.ones(25_450), s=9)), "s = 9"),
    "NaN loss": (lambda r: replace(r, round_loss=float("nan")), "diverged"),
    "buffers from nowhere": (lambda r: replace(r, buffers=b"??"), "buffers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_round_goes_on_with_the_weighted_mean_of_the_others(small: Config, fault: str) -> None:
    config = replace(small, min_clients=2, workers=1)
    spoil, words = FAULTS[fault]
    engine = Spoiled(config, spoil)
    state = server.start(config, engine)
    after, line = server.play_round(state, config, engine)
    assert line["clients"] == 2
    assert list(line["missing"]) == [1]
    assert words in line["missing"][1]
    p = engine.federation.weights
    expected = sum(
        p[reply.client] * aq.decode(reply.frame).dequantize().astype(np.float64)
        for reply in LocalEngine(config).train(state.model, Plan(0, 2, config.eta))
        if reply.client != 1
    ) / (p[0] + p[2])
    np.testing.assert_allclose(after.model.weights - state.model.weights, expected, atol=1e-6)


def test_too_few_answers_stop_the_round_and_name_who_is_missing(small: Config) -> None:
    config = replace(small, workers=1)
    engine = Spoiled(config, FAULTS["truncated"][0])
    state = server.start(config, engine)
    with pytest.raises(
        aq.EngineError, match=r"Round 1: 2 of 3 clients answered, but all .* Missing: client 1: .*trunc"
    ):
        server.play_round(state, config, engine)


@pytest.mark.parametrize(("limit", "words"), [(100.0, "max_update_norm = 100"), ("5x", "5 times the median")])
def test_an_enormous_update_is_refused(small: Config, limit: float | str, words: str) -> None:
    config = replace(small, min_clients=2, workers=1, max_update_norm=limit)
    engine = Spoiled(config, lambda r: replace(r, frame=frame_of(np.full(25_450, 1e6))))
    state = server.start(config, engine)
    after, line = server.play_round(state, config, engine)
    assert words in line["missing"][1]
    assert np.abs(after.model.weights - state.model.weights).max() < 1


@pytest.mark.parametrize("limit", [1e6, "100x"])
def test_a_limit_that_nobody_exceeds_changes_nothing(small: Config, limit: float | str) -> None:
    config = replace(small, workers=1)
    engine = LocalEngine(config)
    state = server.start(config, engine)
    plain, _ = server.play_round(state, config, engine)
    limited, _ = server.play_round(state, replace(config, max_update_norm=limit), engine)
    np.testing.assert_array_equal(plain.model.weights, limited.model.weights)


def test_refused_bytes_are_counted(small: Config) -> None:
    config = replace(small, min_clients=2, workers=1)
    whole, spoiled = LocalEngine(config), Spoiled(config, lambda r: replace(r, frame=r.frame[:-1]))
    totals = []
    for engine in (whole, spoiled):
        _, line = server.play_round(server.start(config, engine), config, engine)
        totals.append(line["wire_bytes_up"])
    assert totals[1] == totals[0] - 1


def test_an_evaluation_goes_on_with_the_losses_that_came(small: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(small, min_clients=2, workers=1)
    engine = LocalEngine(config)
    losses = [engine.trainer.loss(client, engine.federation.model) for client in range(3)]

    def fails(client: int, model: Model) -> float:
        if client == 1:
            raise RuntimeError("no data today")
        return losses[client]

    monkeypatch.setattr(engine.trainer, "loss", fails)
    p = engine.federation.weights
    expected = (p[0] * losses[0] + p[2] * losses[2]) / (p[0] + p[2])
    assert engine.evaluate(engine.federation.model).loss == pytest.approx(expected)
    engine.config = replace(config, min_clients=0)
    with pytest.raises(aq.EngineError, match=r"client 1: it raised RuntimeError: no data today \(test_faults.py"):
        engine.evaluate(engine.federation.model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"min_clients": 4}, "only 3 clients"),
        ({"round_timeout": 0}, "above 0"),
        ({"max_update_norm": "ten"}, "'10x'"),
        ({"max_update_norm": -1.0}, "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(small: Config, changes: dict, words: str) -> None:
    with pytest.raises(aq.ConfigError, match=words):
        replace(small, **changes)
