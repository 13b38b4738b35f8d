"""The two filters around NVFlare's own serialization, without a simulator."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs

from adaquantfl.errors import ConfigError
from adaquantfl.nvflare import DequantizeFilter, QuantizeFilter

Data = dict[str, Any]
flare_decomposers.register()
common_decomposers.register()


@pytest.fixture
def update(rng: np.random.Generator) -> Data:
    return {
        "conv": rng.standard_normal((16, 3, 5, 5)).astype("f4"),
        "bias": rng.standard_normal(300).astype("f4"),
        "half": rng.standard_normal((20, 30)).astype("f2"),
        "double": rng.standard_normal((40, 50)),
        "bn.running_var": rng.standard_normal(16).astype("f4"),
        "bn.num_batches_tracked": np.array(7, dtype="i8"),
        "empty": np.empty((0, 4), dtype="f4"),
    }


def context(name: str, peer: str = "") -> FLContext:
    made = FLContext()
    made.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=True)
    if peer:
        made.set_peer_context(context(peer))
    return made


def result_of(data: Data, round: int = 0, kind: str = DataKind.WEIGHT_DIFF) -> Shareable:
    shareable = DXO(kind, dict(data), {MetaKey.NUM_STEPS_CURRENT_ROUND: 20}).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, round)
    return shareable


def sent(data: Data, round: int = 0, site: str = "site-1", out: QuantizeFilter | None = None) -> Shareable:
    return (out or QuantizeFilter()).process(result_of(data, round), context(site))


def received(shareable: Shareable, site: str = "site-1", **settings: Any) -> DXO:
    arrived = fobs.loads(fobs.dumps(shareable))
    return from_shareable(DequantizeFilter(**settings).process(arrived, context("server", site)))


def error_of(found: Data, update: Data, names: tuple[str, ...]) -> float:
    wrong = sum(float(np.sum((found[name].astype("f8") - update[name]) ** 2)) for name in names)
    return wrong / sum(float(np.sum(update[name].astype("f8") ** 2)) for name in names)


@pytest.mark.parametrize("quantizer", ["centroid", "uniform", "nearest", "fitted"])
@pytest.mark.parametrize("error", [0.01, 0.5])
def test_every_array_comes_back_in_its_type_and_shape_with_the_error_that_was_allowed(
    update: Data, quantizer: str, error: float
) -> None:
    found = received(sent(update, out=QuantizeFilter(error=error, quantizer=quantizer)))
    assert list(found.data) == list(update)
    assert {name: (a.dtype, a.shape) for name, a in found.data.items()} == {
        name: (a.dtype, a.shape) for name, a in update.items()
    }
    for name in ("bn.running_var", "bn.num_batches_tracked", "empty"):
        assert np.array_equal(found.data[name], update[name])
    assert 0 < error_of(found.data, update, ("conv", "bias", "half", "double")) < 1.3 * error
    assert found.meta[MetaKey.NUM_STEPS_CURRENT_ROUND] == 20
    assert MetaKey.PROCESSED_ALGORITHM not in found.meta


def test_tensors_come_back_as_tensors(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    data = {name: torch.randn(50, 40, dtype=getattr(torch, name)) for name in ("float32", "float16", "bfloat16")}
    data["steps"] = torch.tensor(3)
    found = received(sent(data, out=QuantizeFilter(error=0.1))).data
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {n: (t.dtype, t.shape) for n, t in data.items()}
    assert found["steps"] == 3
    assert (found["float32"] - data["float32"]).square().mean() < 0.3


def test_a_message_is_small(rng: np.random.Generator) -> None:
    data = {"w": rng.standard_normal((400, 120)).astype("f4"), "b": rng.standard_normal(120).astype("f4")}
    plain, coarse = len(fobs.dumps(result_of(data))), QuantizeFilter(error=8, quantizer="centroid")
    assert 80 * len(fobs.dumps(sent(data, out=coarse))) < plain
    default = QuantizeFilter()
    sizes = [len(fobs.dumps(sent(data, round, out=default))) for round in range(25)]
    assert 10 * sizes[0] < plain  # of normal random numbers; updates have fewer large elements
    assert 25 * sizes[-1] < plain


def test_randomness_is_a_function_of_seed_round_and_site(update: Data) -> None:
    def key(**changes: Any) -> bytes:
        settings = {"round": 1, "site": "site-1", "seed": 0} | changes
        out = QuantizeFilter(seed=settings.pop("seed"), quantizer="uniform")
        return from_shareable(sent(update, out=out, **settings)).data["update"]

    others = [key(round=2), key(site="site-2"), key(seed=1)]
    assert key() == key()
    assert len({key(), *others}) == 4


def test_the_mean_of_many_clients_is_right(rng: np.random.Generator) -> None:
    data = {"w": rng.standard_normal(2000).astype("f4")}
    out = QuantizeFilter(error=8, quantizer="centroid")
    found = [received(sent(data, site=f"site-{n}", out=out)).data["w"] for n in range(200)]
    wrong = np.mean(found, axis=0) - data["w"]
    assert np.sum(wrong**2) < 2 * 8 / 200 * np.sum(data["w"] ** 2)


def test_with_feedback_what_was_left_out_is_sent_later(rng: np.random.Generator) -> None:
    data = {"w": rng.standard_normal(1000).astype("f4")}
    out = QuantizeFilter(error=0.6, quantizer="nearest")
    found = [received(sent(data, round, out=out)).data["w"] for round in range(30)]
    wrong = np.mean(found, axis=0) - data["w"]
    assert np.sum(wrong**2) < 0.02 * np.sum(data["w"] ** 2)
    again = received(sent(data, 29, out=out)).data["w"]  # a round that is asked for again counts once
    assert np.array_equal(again, found[-1])


def test_the_default_s_error_grows_with_the_rounds_of_a_site(rng: np.random.Generator) -> None:
    data, out = {"w": rng.standard_normal(4000).astype("f4")}, QuantizeFilter()

    def error(round: int, site: str = "site-1", update: Data = data) -> float:
        return error_of(received(sent(update, round, site, out)).data, update, ("w",))

    assert 0.06 < error(5) < 1 / 11  # its first, whatever the round
    remainder = out._remainders["site-1", next(iter(out._remainders))[1]]
    whole = {"w": remainder.added_to(data["w"])}
    assert error_of(received(sent(data, 6, out=out)).data, whole, ("w",)) < 2 / 12
    assert 0.06 < error(6, "site-2") < 1 / 11
    for round in range(7, 40):
        error(round)
    (site, layout), *_ = out._rounds
    assert out._allowed(site, layout, 14) == pytest.approx(10 / 20)  # rounds 5 to 13 before it, asked for again
    assert out._allowed(site, layout, 40) == 0.7


def test_without_feedback_the_default_s_error_is_a_quarter(update: Data) -> None:
    names = ("conv", "bias", "half", "double")
    for settings in ({"quantizer": "centroid"}, {"quantizer": "uniform"}, {"feedback": False}):
        found = received(sent(update, 30, out=QuantizeFilter(**settings))).data
        assert 0.15 < error_of(found, update, names) < 0.26


def test_a_workflow_that_does_not_count_has_feedback_too(rng: np.random.Generator) -> None:
    data, out, found = {"w": rng.standard_normal(1000).astype("f4")}, QuantizeFilter(), []
    for _ in range(30):
        shareable = DXO(DataKind.WEIGHT_DIFF, dict(data)).to_shareable()
        found.append(received(out.process(shareable, context("site-1"))).data["w"])
    assert np.sum((np.mean(found, axis=0) - data["w"]) ** 2) < 0.03 * np.sum(data["w"] ** 2)


def test_whole_weights_pass_and_the_setting_is_named_once(update: Data, caplog: pytest.LogCaptureFixture) -> None:
    out = QuantizeFilter()
    for round in range(2):
        passed = from_shareable(out.process(result_of(update, round, DataKind.WEIGHTS), context("site-1")))
        assert passed.data["conv"] is update["conv"]
    assert caplog.text.count("params_transfer_type=TransferType.DIFF") == 1


@pytest.mark.parametrize("data", [{"n": np.array([1, 2])}, {"w": 1.5}, {"w": np.array([1j])}])
def test_what_has_no_floats_passes_as_it_is(data: Data, caplog: pytest.LogCaptureFixture) -> None:
    assert from_shareable(sent(data)).data == data
    assert "passes as it is" in caplog.text


def test_clients_without_the_filter_work_in_the_same_round(update: Data) -> None:
    found = received(result_of(update)).data
    assert all(np.array_equal(found[name], update[name]) for name in update)


def test_two_filters_of_ours_in_a_row_quantize_once(update: Data) -> None:
    out = QuantizeFilter()
    once = sent(update, out=out)
    twice = out.process(fobs.loads(fobs.dumps(once)), context("site-1"))
    assert from_shareable(twice).data == from_shareable(once).data


def test_an_update_of_zeros_stays_one() -> None:
    found = received(sent({"w": np.zeros(100, dtype="f4"), "b": np.zeros(3, dtype="f4")})).data
    assert not found["w"].any()


def test_a_diverged_client_sends_nothing(update: Data, caplog: pytest.LogCaptureFixture) -> None:
    update["bias"][3] = np.nan
    assert received(sent(update)).data == {}
    assert "nothing is sent in round 0" in caplog.text


def spoiled(update: Data) -> dict[str, Data]:
    good = from_shareable(sent(update)).data
    packed = json.loads(zlib.decompress(good["layout"]))

    def layout(change: Any) -> bytes:
        copy = json.loads(json.dumps(packed))
        change(copy)
        return zlib.compress(json.dumps(copy).encode())

    return {
        "altered": {**good, "update": good["update"][:40] + b"?" + good["update"][41:]},
        "truncated": {**good, "update": good["update"][:-9]},
        "no bytes": {**good, "update": 3},
        "missing": {"update": good["update"]},
        "another entry": {**good, "more": b""},
        "layout altered": {**good, "layout": good["layout"][:-1] + b"?"},
        "layout truncated": {**good, "layout": good["layout"][:-6]},
        "no layout": {**good, "layout": zlib.compress(b"[1, 2]")},
        "a bomb": {**good, "layout": zlib.compress(b"[" * 2**26)},
        "deep": {**good, "layout": zlib.compress(b"[" * 2**20)},
        "of another shape": {**good, "layout": layout(lambda one: one[0][1][0].__setitem__(2, [16, 3, 5, 6]))},
        "of another kind": {**good, "layout": layout(lambda one: one[0][1][4].__setitem__(3, "o"))},
        "of no type": {**good, "layout": layout(lambda one: one[1].update(conv="Tensor"))},
        "infinite": {**good, "layout": layout(lambda one: one[0][1][0].__setitem__(2, [float("inf")]))},
        "enormous": {**good, "layout": layout(lambda one: one[0][1][0].__setitem__(2, [2**31]))},
    }


NAMES = (
    "altered", "truncated", "no bytes", "missing", "another entry", "layout altered", "layout truncated", "no layout",
    "a bomb", "deep", "of another shape", "of another kind", "of no type", "infinite", "enormous",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_message_is_dropped_and_names_its_client(
    name: str, update: Data, caplog: pytest.LogCaptureFixture
) -> None:
    bad = spoiled(update)[name]
    shareable = DXO(DataKind.WEIGHT_DIFF, bad, {MetaKey.PROCESSED_ALGORITHM: "adaquantfl"}).to_shareable()
    assert received(shareable, "site-9").data == {}
    assert "the update of site-9 is dropped" in caplog.text


def test_a_larger_update_than_the_server_takes_is_dropped(update: Data, caplog: pytest.LogCaptureFixture) -> None:
    assert received(sent(update), most_elements=1000).data == {}
    assert "most_elements" in caplog.text


def test_a_round_without_a_single_update_keeps_the_model(caplog: pytest.LogCaptureFixture) -> None:
    mean, events = FLModel(params={}), context("server")
    assert mean.params_type == ParamsType.FULL
    events.set_prop(AppConstants.AGGREGATION_RESULT, mean)
    DequantizeFilter().handle_event(AppEventType.AFTER_AGGREGATION, events)
    assert mean.params_type == ParamsType.DIFF
    assert "the model stays as it is" in caplog.text


def test_a_round_with_updates_is_left_alone() -> None:
    mean, events = FLModel(params={"w": np.ones(2)}), context("server")
    events.set_prop(AppConstants.AGGREGATION_RESULT, mean)
    DequantizeFilter().handle_event(AppEventType.AFTER_AGGREGATION, events)
    assert mean.params_type == ParamsType.FULL


SETTINGS_THAT_CANNOT_WORK: list[Data] = [
    {"error": 0},
    {"error": float("nan"), "quantizer": "centroid"},
    {"quantizer": "stc"},
    {"error": 8.0},  # its quantizer has feedback
    {"error": 1.0, "quantizer": "centroid", "feedback": True},
]


@pytest.mark.parametrize("settings", SETTINGS_THAT_CANNOT_WORK)
def test_settings_that_cannot_work_are_refused(settings: Data) -> None:
    with pytest.raises(ConfigError):
        QuantizeFilter(**settings)
