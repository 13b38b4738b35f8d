"""One client, with or without the mod, neither stops a round nor turns it: its reply is refused, or counts for less."""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message
from flwr.app.message.message import make_message
from flwr.serverapp.strategy import FedAvg

import adaquantfl as aq
from adaquantfl.flower import quantize_mod
from adaquantfl.flower.records import REPLY
from support.costs import most_taken
from support.fake_flower import MODEL, Arrays, Client, FakeGrid, arrays_of, clients, final, record, run, same
from support.paper_strategy import paper_strategy

Tamper = Callable[[Message], Message]
FINE = aq.Fixed(bits=16)
OURS: Any = (quantize_mod,)
NONE: Any = ()
BOTH = [OURS, NONE]  # mods of a client


def metrics(**changes: Any) -> Tamper:
    def tamper(reply: Message) -> Message:
        if reply.has_content() and reply.content.metric_records and "train_loss" in reply.content["metrics"]:
            reply.content["metrics"].update(changes)  # type: ignore[union-attr]
        return reply

    return tamper


def update(change: Callable[[bytes], Any]) -> Tamper:
    """Change the update of a client with the mod."""

    def tamper(reply: Message) -> Message:
        for entry in reply.content.config_records.values():
            if REPLY in entry:
                entry[REPLY] = change(entry[REPLY])  # type: ignore[arg-type]
        return reply

    return tamper


def smuggled(reply: Message) -> Message:
    if any(REPLY in entry for entry in reply.content.config_records.values()):
        reply.content["more"] = record({"conv": np.full((20, 30), 1e9, "f4")})
    return reply


def arrays(change: Callable[[Arrays], Arrays]) -> Tamper:
    """Change the arrays of a client without the mod."""

    def tamper(reply: Message) -> Message:
        if reply.has_content() and reply.content.array_records:
            reply.content["arrays"] = record(change(arrays_of(reply)))
        return reply

    return tamper


def each(change: Callable[[str, Any], Any]) -> Tamper:
    return arrays(lambda given: {name: change(name, array) for name, array in given.items()})


def failed(reply: Message) -> Message:
    return make_message(metadata=reply.metadata, error=Error(2, "the client raised")) if reply.has_content() else reply


HOSTILE: dict[str, tuple[Tamper, str, Any]] = {
    "a flipped bit": (update(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]), "checksum", OURS),
    "no bytes": (update(lambda data: b""), "too short", OURS),
    "text": (update(lambda data: "text"), "expected bytes", OURS),
    "arrays beside the update": (smuggled, "arrays next to it", OURS),
    "negative weight": (metrics(**{"num-examples": -33}), "num-examples is -33", OURS),
    "weight NaN": (metrics(**{"num-examples": math.nan}), "num-examples is nan", NONE),
    "enormous weight": (metrics(**{"num-examples": 1e30}), "num-examples", OURS),
    "weight as a list": (metrics(**{"num-examples": [1, 2]}), "metrics are not those of the other", NONE),
    "a metric more": (metrics(extra=1.0), "metrics.extra", OURS),
    "a list in place of a number": (metrics(train_loss=[1.0, 2.0]), "metrics.train_loss", NONE),
    "a shape that broadcasts": (each(lambda _, a: a[..., :1] if a.ndim else a), "shape", NONE),
    "long doubles": (each(lambda _, a: a.astype("f8") if a.dtype.kind == "f" else a), "float64", NONE),
    "an array missing": (arrays(lambda given: dict(list(given.items())[1:])), "those of the model", NONE),
    "an array more": (arrays(lambda given: {**given, "more": np.ones(3, "f4")}), "those of the model", NONE),
    "NaN": (each(lambda name, a: a * np.nan if name == "conv" else a), "NaN", NONE),
    "NaN in a buffer": (each(lambda name, a: a * np.nan if "running" in name else a), "NaN", NONE),
    "a buffer far away": (each(lambda name, a: a + 1e9 if "running" in name else a), "", NONE),
    "an integer far away": (each(lambda _, a: a + 10**15 if a.dtype.kind == "i" else a), "", NONE),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_round_is_the_one_without_the_client(kind: str) -> None:
    tamper, reason, mods = HOSTILE[kind]
    results, strategies = [], [paper_strategy(FedAvg(), max_update_norm=1e6) for _ in range(2)]
    for strategy, change in zip(strategies, (tamper, failed), strict=True):
        grid = FakeGrid(clients(mods=mods))
        grid.tamper[1] = change
        results.append(run(strategy, grid))
    assert list(strategies[0].refusals) == [1001]
    assert reason in strategies[0].refusals[1001]
    assert same(*results)
    assert results[0].train_metrics_clientapp[1]["aq_refused"] == 1


def test_an_update_that_does_not_fit_its_type_is_refused() -> None:
    model = {"w": np.full(100, 60_000, "f2")}  # with one level, steps of 1000 become some of 10,000
    group = [Client(lambda _, array: array + np.float16(1000)), *(Client(lambda _, array: array) for _ in range(3))]
    strategy = paper_strategy(FedAvg(), rule=aq.Fixed(bits=1))
    run(strategy, FakeGrid(group), model=model)
    assert "beyond the range of float16" in strategy.refusals[1000]


@pytest.mark.parametrize("mods", BOTH)
def test_giants_are_clipped(mods: Any) -> None:
    group, limit = clients(), 0.5
    group[3] = Client(lambda _, array: array + array.dtype.type(1), examples=1000, mods=mods)
    strategy = paper_strategy(FedAvg(), rule=FINE, max_update_norm=limit, norm_action="clip")
    result = run(strategy, FakeGrid(group))
    assert not strategy.refusals
    moved = [final(result)[name].astype("f8") - array for name, array in MODEL.items() if array.dtype.kind == "f"]
    norm = np.linalg.norm(np.concatenate([np.ravel(each) for each in moved]))
    assert 0.9 * limit < norm < 1.01 * limit  # almost all of the weight is the giant's


@pytest.mark.parametrize(("kind", "mods"), [(int, NONE), (float, OURS)])
def test_a_weight_above_max_examples_counts_as_that(kind: type, mods: Any) -> None:
    """Of 10, 11, 12 and 13 examples the lower median is 11."""
    results = []
    for weight, limit in ((kind(2**32 - 1), "2x"), (kind(22), 0)):
        strategy, grid = paper_strategy(FedAvg(), max_examples=limit), FakeGrid(clients(mods=mods))
        grid.tamper[3] = metrics(**{"num-examples": weight})
        results.append(run(strategy, grid))
        assert not strategy.refusals
    assert same(*results)
    assert results[0].train_metrics_clientapp[1]["aq_capped"] == 1


@pytest.mark.parametrize("mods", BOTH)
def test_a_false_loss_counts_as_ten_times_the_median(mods: Any) -> None:
    """Else 1e300 as f(w_0) would make the paper's rule take 65,535 levels for the rest of the run."""
    strategy, grid = paper_strategy(FedAvg(), rule=aq.AdaQuant(s0=2)), FakeGrid(clients())
    grid.clients[0] = clients(mods=mods)[0]
    grid.tamper[0] = metrics(train_loss=1e300)
    result = run(strategy, grid)
    assert strategy.server is not None
    assert strategy.server.current.loss == pytest.approx((10 * 10 + 11 + 12 + 13) / 46)
    assert result.train_metrics_clientapp[1]["aq_bounded"] == 1


@pytest.mark.parametrize("shape", [(2**33,), (2**31, 2**31), (5,)])
def test_an_array_whose_header_lies_refuses_its_client_before_memory_is_taken(shape: tuple[int, ...]) -> None:
    def lie(reply: Message) -> Message:
        file = BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        lying = Array("float32", (20, 30), "numpy.ndarray", file.getvalue() + bytes(2400))
        for name, arrays in list(reply.content.array_records.items()):  # an evaluation has none
            reply.content[name] = ArrayRecord({**arrays, "conv": lying})
        return reply

    grid, strategy = FakeGrid(clients(mods=NONE)), paper_strategy(FedAvg())
    grid.tamper[1] = lie
    assert most_taken(lambda: run(strategy, grid)) < 10**7
    assert list(strategy.refusals) == [1001]
