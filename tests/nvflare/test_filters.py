"""The two filters around NVFlare's own serialization, without a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.utils import fobs

import adaquantfl as aq
from adaquantfl.nvflare import ClientFilter, ServerFilter, client, message

Data = dict[str, Any]
FLOATS = ("conv", "bias", "half", "double")
_JOBS = count()
flare_decomposers.register()
common_decomposers.register()


class Workspace:
    """What of NVFlare's engine the filters look at."""

    def __init__(self, folder: Any, names: list[str]) -> None:
        self.folder, self.names = folder, names

    def get_workspace(self) -> Workspace:
        return self

    def fire_event(self, event: str, fl_ctx: FLContext) -> None:
        pass

    def get_run_dir(self, job: str) -> Any:
        return self.folder

    def get_clients(self) -> list[Any]:
        return [type("Client", (), {"name": name}) for name in self.names]


class Job:
    """FedAvg over some sites, with our filters where NVFlare has them."""

    def __init__(self, model: Data, folder: Any, sites: int = 2, kind: str = DataKind.WEIGHTS, **settings: Any) -> None:
        self.model, self.kind, self.number, self.round = dict(model), kind, f"job {next(_JOBS)}", 0
        self.sites = [f"site-{place}" for place in range(1, sites + 1)]
        self.engine, self.settings = Workspace(folder, self.sites), settings
        self.bytes = {"up": 0, "down": 0}
        self.meta: Data = {}  # the same for all tasks of a round, as NVFlare has it

    def context(self, name: str, way: str = FilterKey.IN, peer: str = "") -> FLContext:
        made = FLContext()
        made.set_prop(ReservedKey.IDENTITY_NAME, name, private=False, sticky=False)
        made.set_prop(ReservedKey.RUN_NUM, self.number, sticky=False)
        made.set_prop(ReservedKey.ENGINE, self.engine, sticky=False)
        made.set_prop(FLContextKey.FILTER_DIRECTION, way, sticky=False)
        if peer:
            made.set_peer_context(self.context(peer))
        return made

    def result(self, site: str, step: Mapping[str, Any]) -> Data:
        """A site trains: the arrays that the workflow gets for it."""
        return self.arrived(site, self.trained(site, step))

    def ordered(self, site: str) -> Shareable:
        """The task as it travels."""
        task = DXO(DataKind.WEIGHTS, dict(self.model), self.meta).to_shareable()
        task.set_header(AppConstants.CURRENT_ROUND, self.round)
        sent = ServerFilter(**self.settings).process(task, self.context("server", FilterKey.OUT, site))
        self.bytes["down"] += len(data := fobs.dumps(sent))
        return fobs.loads(data)

    def trained(self, site: str, step: Mapping[str, Any]) -> Shareable:
        """The result as it travels."""
        given = from_shareable(ClientFilter().process(self.ordered(site), self.context(site))).data
        self.given = given
        found = {name: value + step.get(name, 0) if name in step else value for name, value in given.items()}
        if self.kind == DataKind.WEIGHT_DIFF:
            found = {name: value - given[name] for name, value in found.items()}
        result = DXO(self.kind, found, {MetaKey.NUM_STEPS_CURRENT_ROUND: 20}).to_shareable()
        sent = ClientFilter().process(result, self.context(site, FilterKey.OUT))
        self.bytes["up"] += len(data := fobs.dumps(sent))
        return fobs.loads(data)

    def arrived(self, site: str, sent: Shareable) -> Data:
        seen = from_shareable(ServerFilter(**self.settings).process(sent, self.context("server", peer=site)))
        assert seen.data_kind == self.kind
        assert MetaKey.PROCESSED_ALGORITHM not in seen.meta
        assert seen.meta[MetaKey.NUM_STEPS_CURRENT_ROUND] == 20
        return seen.data

    def play(self, steps: Mapping[str, Mapping[str, Any]]) -> None:
        """A round: what each site adds to the model. The workflow takes the mean."""
        results = [found for site, step in steps.items() if (found := self.result(site, step))]
        self.close(results)

    def close(self, results: list[Data]) -> None:
        for name, old in self.model.items() if results else ():
            mean = sum(found[name] for found in results) / len(results)
            self.model[name] = mean if self.kind == DataKind.WEIGHTS else old + mean  # as floats: so does FedAvg
        self.round += 1


@pytest.fixture
def model(rng: np.random.Generator) -> Data:
    return {
        "conv": rng.standard_normal((16, 3, 5, 5)).astype("f4"),
        "bias": rng.standard_normal(300).astype("f4"),
        "half": rng.standard_normal((20, 30)).astype("f2"),
        "double": rng.standard_normal((40, 50)),
        "bn.running_var": rng.standard_normal(16).astype("f4"),
        "bn.num_batches_tracked": np.array(7, dtype="i8"),
        "empty": np.empty((0, 4), dtype="f4"),
    }


def random_step(rng: np.random.Generator, model: Data) -> Data:
    step = {name: (0.01 * rng.standard_normal(model[name].shape)).astype(model[name].dtype) for name in FLOATS}
    return {**step, "bn.num_batches_tracked": np.array(1), "bn.running_var": np.float32(0.5)}


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_the_workflow_gets_every_array_in_its_type_and_shape(
    kind: str, model: Data, rng: np.random.Generator, tmp_path: Any
) -> None:
    job, step = Job(model, tmp_path, kind=kind), random_step(rng, model)
    found = job.result("site-1", step)
    assert list(found) == list(model)
    assert {name: (a.dtype, a.shape) for name, a in found.items()} == {n: (a.dtype, a.shape) for n, a in model.items()}
    base = model if kind == DataKind.WEIGHTS else {name: np.zeros_like(value) for name, value in model.items()}
    assert found["bn.num_batches_tracked"] == base["bn.num_batches_tracked"] + 1
    assert np.allclose(found["bn.running_var"], base["bn.running_var"] + 0.5)
    moved = np.concatenate([(found[name] - base[name]).ravel() for name in ("conv", "bias")])
    wanted = np.concatenate([step[name].ravel() for name in ("conv", "bias")])
    assert 0.1 < np.sum((moved - wanted) ** 2) / np.sum(wanted**2) < 1.5  # the first round's noise
    assert all(np.allclose(job.given[name], model[name], atol=1e-6) for name in model), "the first model is not rounded"


def test_tensors_travel_as_tensors(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    model = {name: torch.randn(50, 40, dtype=getattr(torch, name)) for name in ("float32", "float16", "bfloat16")}
    model["steps"] = torch.tensor(3)
    found = Job(model, tmp_path, kind=DataKind.WEIGHT_DIFF).result("site-1", {"float32": 0.1, "steps": 1})
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {n: (t.dtype, t.shape) for n, t in model.items()}
    assert found["steps"] == 1


def test_a_downlink_that_is_behind_loses_nothing_of_the_workflow_s_model(
    rng: np.random.Generator, tmp_path: Any
) -> None:
    """The workflow's model is the sum of the steps that it took, whatever its clients held."""
    for kind in (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF):
        job = Job({"w": np.zeros(5_000, dtype="f4")}, tmp_path / kind, kind=kind)
        total = np.zeros(5_000)
        for _ in range(6):
            before = job.model["w"]
            results = [job.result(site, {"w": rng.standard_normal(5_000).astype("f4")}) for site in job.sites]
            moved = [found["w"] - (before if kind == DataKind.WEIGHTS else 0) for found in results]
            job.close(results)
            total += np.mean(moved, axis=0)
        assert np.allclose(job.model["w"], total, atol=1e-4)
        assert not np.allclose(job.given["w"], before, atol=1e-4), "clients are a little behind"


def test_randomness_is_a_function_of_the_seed_and_the_round(
    model: Data, rng: np.random.Generator, tmp_path: Any
) -> None:
    step = random_step(rng, model)

    def found(seed: int) -> bytes:
        job = Job(model, tmp_path / str(next(_JOBS)), seed=seed)
        return bytes(job.result("site-1", step)["conv"].tobytes())

    assert found(0) == found(0) != found(1)


def test_a_site_s_process_that_starts_again_has_its_model(model: Data, rng: np.random.Generator, tmp_path: Any) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    for _ in range(3):
        job.play(dict.fromkeys(job.sites, step))
    before = job.bytes["down"]
    client._ENDS.pop(message.place(job.context("site-1")))
    assert job.result("site-1", step)
    assert job.bytes["down"] - before < 2000


def test_a_site_that_lost_its_model_gets_it_whole_after_one_failed_round(
    model: Data, rng: np.random.Generator, tmp_path: Any
) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    for _ in range(2):
        job.play(dict.fromkeys(job.sites, step))
    client._ENDS.pop(message.place(job.context("site-1")))
    (tmp_path / "adaquantfl" / "site-1" / "state.npz").write_bytes(b"PK and no more")
    with pytest.raises(aq.ModelNeeded):  # NVFlare sends the server an error for it
        job.result("site-1", step)
    failed = make_reply(ReturnCode.TASK_DATA_FILTER_ERROR)
    ServerFilter().process(failed, job.context("server", peer="site-1"))
    assert job.result("site-1", step)


def test_sites_that_the_workflow_left_out_go_on_from_the_model_that_they_hold(
    model: Data, rng: np.random.Generator, tmp_path: Any
) -> None:
    job, step = Job(model, tmp_path, sites=3), random_step(rng, model)
    job.play(dict.fromkeys(job.sites, step))
    for place in range(1, 4):
        job.play({job.sites[place % 3]: step, job.sites[(place + 1) % 3]: step})
    before = job.bytes["down"]
    job.play({job.sites[1]: step})
    assert job.bytes["down"] - before < 10_000


def test_sites_without_the_filter_work_in_the_same_round(model: Data, rng: np.random.Generator, tmp_path: Any) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    plain = DXO(job.kind, dict(model), {MetaKey.NUM_STEPS_CURRENT_ROUND: 20}).to_shareable()
    for _ in range(2):
        job.close([job.result("site-1", step), job.arrived("site-2", fobs.loads(fobs.dumps(plain)))])
    late = from_shareable(job.ordered("site-9")).data  # it came after the round began
    assert np.array_equal(late["conv"], job.model["conv"])


def test_a_model_that_goes_from_site_to_site_within_a_round_loses_no_site_s_work(
    model: Data, rng: np.random.Generator, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    job.model = job.result("site-1", step)
    job.result("site-2", step)
    assert np.allclose(job.given["bias"], job.model["bias"], atol=0.05)
    job.ordered("site-1")  # still at work when the model changes, as in an asynchronous workflow
    job.model = {**job.model, "bias": job.model["bias"] + 1}
    late = from_shareable(job.ordered("site-2")).data
    assert np.array_equal(late["bias"], job.model["bias"])
    assert "not the one that other clients of this round train" in caplog.text


@pytest.mark.parametrize("data", [{"n": np.array([1, 2])}, {"w": 1.5}, {"w": np.array([1j])}])
def test_a_model_without_floats_passes_as_it_is(data: Data, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(data, tmp_path)
    found = job.result("site-1", {})
    assert all(np.array_equal(found[name], value) for name, value in data.items())
    assert "the model passes as it is" in caplog.text


def test_a_diverged_site_misses_its_round(model: Data, rng: np.random.Generator, tmp_path: Any, caplog: Any) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    assert job.result("site-1", {"bias": np.float32(np.nan)}) == {}
    assert "the update of site-1 is dropped" in caplog.text
    assert "diverged" in caplog.text
    job.close([job.result("site-2", step)])
    assert job.result("site-1", step)


BAD: dict[str, Any] = {
    "altered": lambda data: data[:-9] + b"?" + data[-8:],
    "truncated": lambda data: data[:-9],
    "longer": lambda data: data + b"?",
    "no bytes": lambda data: 3,
    "another client's round": lambda data: data[:4] + b"\xff" + data[5:],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_reply_is_dropped_and_names_its_site(
    name: str, model: Data, rng: np.random.Generator, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job, step = Job(model, tmp_path), random_step(rng, model)
    sent = job.trained("site-1", step)
    dxo = from_shareable(sent)
    dxo.data = {"reply": BAD[name](dxo.data["reply"])}
    assert job.arrived("site-1", dxo.update_shareable(sent)) == {}
    assert "the update of site-1 is dropped" in caplog.text
    job.close([job.result("site-2", step)])
    assert job.result("site-1", step), "it gets the next order"


def test_a_round_without_a_single_update_keeps_the_model(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    for params, kind in (({}, ParamsType.DIFF), ({"w": np.ones(2)}, ParamsType.FULL)):
        mean, events = FLModel(params=params), Job({}, tmp_path).context("server")
        assert mean.params_type == ParamsType.FULL
        events.set_prop(AppConstants.AGGREGATION_RESULT, mean)
        ServerFilter().handle_event(AppEventType.AFTER_AGGREGATION, events)
        assert mean.params_type == kind
    assert caplog.text.count("the model stays as it is") == 1


def test_the_end_of_a_job_forgets_it_and_says_what_was_sent(
    model: Data, rng: np.random.Generator, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(model, tmp_path)
    job.play(dict.fromkeys(job.sites, random_step(rng, model)))
    with caplog.at_level("INFO"):
        ServerFilter().handle_event(EventType.END_RUN, job.context("server"))
    assert "bytes up" in caplog.text
    assert len(fobs.dumps(job.ordered("site-1"))) > 4 * model["double"].size, "another job begins with the whole model"


@pytest.mark.parametrize("settings", [{"rule": "autos"}, {"downlink": "lat"}])
def test_settings_that_cannot_work_are_refused(settings: Data) -> None:
    with pytest.raises(aq.AdaQuantError, match="Did you mean"):
        ServerFilter(**settings)
