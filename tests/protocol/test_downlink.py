"""The exact downlink: from wherever it stands, a client comes to the server's very model, or says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import adaquantfl as aq
from adaquantfl.engines.local import LocalEngine
from adaquantfl.protocol import server
from adaquantfl.protocol.downlink import (
    Downlink,
    Held,
    ParcelRefused,
    Relay,
    add_up,
    digest_of,
    open_parcel,
    whole_size,
)
from adaquantfl.protocol.messages import Model
from adaquantfl.runs import checkpoint
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config

D = 3000


def some_model(seed: int, buffers: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    return Model(rng.normal(0, 0.1, D).astype(np.float32), rng.normal(0, 1, buffers).astype(np.float32))


def history(rounds: int, s: int = 1, clients: int = 3, buffers: int = 0) -> tuple[list[Model], list[Downlink]]:
    """Models of a few rounds of random frames, and the downlink after each."""
    rng = np.random.default_rng(1)
    models = [some_model(0, buffers)]
    ways = [Downlink.start(0, models[0])]
    for k in range(rounds):
        x = rng.normal(0, 0.01, (clients, D)).astype(np.float32)
        relay = Relay([(aq.compress(x[i], s, key=10 * k + i), 1 / 3) for i in range(clients)], 1.0 if k % 2 else 1.5)
        after = Model(add_up(models[-1].weights, relay), some_model(k + 5, buffers).buffers)
        ways.append(ways[-1].after_round(models[-1], after, relay))
        models.append(after)
    return models, ways


def held(models: list[Model], round: int) -> Held:
    return Held(round, models[round], digest_of(models[round]))


def same(a: Model, b: Model) -> bool:
    return a.weights.tobytes() == b.weights.tobytes() and a.buffers.tobytes() == b.buffers.tobytes()


@pytest.mark.parametrize("buffers", [0, 7])
@pytest.mark.parametrize("missed", [0, 1, 2, 5])
def test_who_missed_rounds_gets_what_it_missed(buffers: int, missed: int) -> None:
    models, ways = history(5, buffers=buffers)
    parcel = ways[5].parcel(5 - missed, models[5])
    assert len(parcel) == ways[5].size(5 - missed, models[5]) < whole_size(models[5])
    assert same(open_parcel(parcel, held(models, 5 - missed), D, buffers).model, models[5])


def test_who_has_nothing_gets_the_model() -> None:
    models, ways = history(2, buffers=7)
    parcel = ways[2].parcel(None, models[2])
    assert len(parcel) == ways[2].size(None, models[2]) > whole_size(models[2])
    assert same(open_parcel(parcel, None, D, 7).model, models[2])


def test_steps_larger_than_the_model_are_forgotten() -> None:
    models, ways = history(40, s=255)
    assert 0 < len(ways[40].steps) < 40
    assert sum(map(len, ways[40].steps)) < whole_size(models[40])
    parcel = ways[40].parcel(0, models[40])
    assert same(open_parcel(parcel, None, D, 0).model, models[40])


def test_many_frames_become_one_difference() -> None:
    models, ways = history(1, s=255, clients=12)
    assert len(ways[1].steps) == 1
    assert ways[1].size(0, models[1]) < whole_size(models[1])
    assert same(open_parcel(ways[1].parcel(0, models[1]), held(models, 0), D, 0).model, models[1])


@pytest.mark.parametrize("has", ["nothing", "an older round", "another model"])
def test_a_client_that_holds_something_else_says_so(has: str) -> None:
    models, ways = history(3)
    parcel = ways[3].parcel(2, models[3])
    before = {
        "nothing": None,
        "an older round": held(models, 1),
        "another model": Held(2, models[1], digest_of(models[1])),
    }[has]
    with pytest.raises(ParcelRefused):
        open_parcel(parcel, before, D, 0)


def test_an_empty_step_does_not_pass_for_another_model() -> None:
    models, ways = history(2)
    with pytest.raises(ParcelRefused, match="digest"):
        open_parcel(ways[2].parcel(2, models[2]), Held(2, models[1], digest_of(models[1])), D, 0)


def test_a_damaged_parcel_is_refused() -> None:
    models, ways = history(3)
    for parcel in (ways[3].parcel(1, models[3]), ways[3].parcel(None, models[3])):
        for place in range(0, len(parcel), 37):
            bad = parcel[:place] + bytes([parcel[place] ^ 0x55]) + parcel[place + 1 :]
            try:
                after = open_parcel(bad, held(models, 1), D, 0)
            except ParcelRefused:
                continue
            assert same(after.model, models[3])  # a bit of padding, or of a round's number
        for length in range(0, len(parcel), 101):
            with pytest.raises(ParcelRefused):
                open_parcel(parcel[:length], held(models, 1), D, 0)


@pytest.mark.parametrize("method", ["adaquant", "fp32"])
def test_the_downlink_changes_the_bytes_and_nothing_else(small: Config, tmp_path: Path, method: str) -> None:
    plain, exact = (
        runner.run(replace(small, rounds=4, workers=1, downlink=way, method=method), tmp_path / way)
        for way in ("model", "exact")
    )
    assert plain["model_sha256"] == exact["model_sha256"]
    assert plain["wire_bytes_up"] == exact["wire_bytes_up"]
    assert exact["wire_bytes_down"] < plain["wire_bytes_down"]


def test_batchnorm_statistics_come_along(small: Config, noise_task: object, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = replace(small, clients=2, tau=1, downlink="exact", workers=1, model="resnet18", dataset="cifar-10")
    monkeypatch.setattr("adaquantfl.engines.calls.Task.of", lambda config: noise_task)
    engine = LocalEngine(config)
    state = server.start(config, engine)
    after, _ = server.play_round(state, config, engine)
    assert after.downlink is not None
    start = Held(0, state.model, digest_of(state.model))
    parcel = after.downlink.parcel(0, after.model)
    assert len(parcel) < whole_size(after.model) / 5
    assert same(open_parcel(parcel, start, len(state.model.weights), len(state.model.buffers)).model, after.model)


@pytest.mark.parametrize("way", ["exact", "lossy"])
def test_a_checkpoint_keeps_the_way_down(small: Config, tmp_path: Path, way: str) -> None:
    config = replace(small, workers=1, downlink=way)
    engine = LocalEngine(config)
    state = server.start(config, engine)
    for _ in range(2):
        state, _ = server.play_round(state, config, engine)
    checkpoint.save(state, tmp_path)
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    assert loaded.downlink == state.downlink
    one, other = (server.play_round(s, config, engine) for s in (state, loaded))
    assert same(one[0].model, other[0].model)
    assert one[1]["wire_bytes_down"] == other[1]["wire_bytes_down"]


def test_the_lossy_downlink_owes_what_it_did_not_send(small: Config) -> None:
    """v_k + remainder is the model that lossless rounds from the same v's would have: nothing is lost for good."""
    config = replace(small, workers=1, downlink="lossy")
    engine = LocalEngine(config)
    state = server.start(config, engine)
    owed = state.model.weights.astype(np.float64)
    for _ in range(4):
        exact, _ = server.play_round(replace(state, remainder=None, downlink=None), config, engine)
        owed += exact.model.weights.astype(np.float64) - state.model.weights
        state, line = server.play_round(state, config, engine)
    assert state.remainder is not None
    np.testing.assert_allclose(state.model.weights + state.remainder, owed, atol=1e-5)
    assert 0 < np.linalg.norm(state.remainder) < np.linalg.norm(state.model.weights - engine.federation.model.weights)
    assert line["paper_bits_down"] > 0
    assert line["wire_bytes_down"] < 4 * small.clients * whole_size(state.model) / 2
