"""A round is the paper's equations, and the ledger counts what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

import adaquantfl as aq
from adaquantfl.codecs.raw import frame_size
from adaquantfl.protocol import server
from adaquantfl.protocol.messages import Evaluation, Federation, Model, Plan, Reply
from adaquantfl.runs.config import Config
from adaquantfl.training import models
from adaquantfl.training.task import Task
from adaquantfl.training.trainer import Trainer, one_thread


class InProcess:
    """An engine around one trainer."""

    name = "in process"
    downlink = None

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.federation: Federation = trainer.federation

    def train(self, model: Model, plan: Plan, clients: Sequence[int] | None = None) -> Iterator[Reply]:
        for client in clients or range(len(self.federation.samples)):
            yield self.trainer.train(client, model, plan)

    def evaluate(self, model: Model, test: bool = True) -> Evaluation:
        losses = [self.trainer.loss(i, model) for i in range(len(self.federation.samples))]
        return Evaluation(
            sum(p * f for p, f in zip(self.federation.weights, losses, strict=True)), 0.5 if test else None
        )

    def close(self) -> None:
        pass


def play(config: Config, rounds: int, task: Task | None = None) -> tuple[InProcess, list[server.RunState], list[dict]]:
    engine = InProcess(Trainer(config, task or Task.of(config)))
    states, lines = [server.start(config, engine)], []
    for _ in range(rounds):
        state, line = server.play_round(states[-1], config, engine)
        state, line = server.evaluate(state, line, config, engine)
        states.append(state)
        lines.append(line)
    return engine, states, lines


def test_the_model_moves_by_the_weighted_sum_of_quantized_updates(small: Config) -> None:
    engine, states, lines = play(small, 2)
    for k, (before, after) in enumerate(pairwise(states)):
        expected = before.model.weights.astype(np.float64)
        for client, p in enumerate(engine.federation.weights):
            reply = engine.trainer.train(client, before.model, Plan(k, lines[k]["s"], small.eta))
            levels = aq.decode(reply.frame)
            assert levels.s == lines[k]["s"]
            expected = expected + p * levels.dequantize()
        np.testing.assert_allclose(after.model.weights, expected, rtol=1e-5, atol=1e-6)


def test_float32_is_plain_federated_averaging(small: Config) -> None:
    config = replace(small, method="fp32")
    engine, states, _ = play(config, 2)
    task = engine.trainer.task
    sizes = np.array([len(part) for part in task.parts])
    model = models.build("mlp", config.seed)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    with one_thread():
        for k in range(2):
            average = torch.zeros_like(weights, dtype=torch.float64)
            for client in range(config.clients):
                torch.nn.utils.vector_to_parameters(weights.clone(), model.parameters())
                for batch in engine.trainer._batches(client, k):
                    x, y = task.train.batch(batch)
                    model.zero_grad()
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    with torch.no_grad():
                        for p in model.parameters():
                            p -= config.eta * p.grad
                local = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
                average += sizes[client] / sizes.sum() * local.double()
            weights = average.float()
    np.testing.assert_allclose(states[2].model.weights, weights.numpy(), rtol=1e-4, atol=1e-5)


def test_mini_batches_are_uniform_without_replacement_and_new_each_round(small: Config) -> None:
    trainer = Trainer(small, Task.of(small))
    part = trainer.task.parts[0]
    first = np.concatenate(list(trainer._batches(0, 0)))
    assert len(first) == small.tau * small.batch_size
    assert len(set(first)) == len(first)
    assert set(first) <= set(part)
    assert not np.array_equal(first, np.concatenate(list(trainer._batches(0, 1))))
    np.testing.assert_array_equal(first, np.concatenate(list(trainer._batches(0, 0))))
    # A client with fewer samples than a round needs starts over when it has used them all.
    tiny = Trainer(
        replace(small, clients=2000, partition="iid"), Task.of(replace(small, clients=2000, partition="iid"))
    )
    draws = np.concatenate(list(tiny._batches(7, 0)))
    assert len(draws) == small.tau * small.batch_size
    counts = np.bincount(np.searchsorted(tiny.task.parts[7], draws))
    assert counts.max() - counts.min() <= 1


def test_the_ledger_adds_up_formula_bits_and_real_bytes(small: Config) -> None:
    engine, states, lines = play(small, 3)
    d, tensors = engine.federation.dimension, len(engine.federation.tensors)
    bits = up = 0
    for k, line in enumerate(lines):
        bits += aq.paper_bits(d, line["s"], tensors)
        for client in range(small.clients):
            up += len(engine.trainer.train(client, states[k].model, Plan(k, line["s"], small.eta)).frame) + 4
        assert line["paper_bits"] == bits
        assert line["wire_bytes_up"] == up + 4 * small.clients  # and f_i(w_0), once, for the first interval
        assert line["wire_bytes_down"] == (k + 1) * small.clients * (frame_size(d) + Plan.BYTES)
        assert line["payload_bytes_down"] == (k + 1) * small.clients * 4 * d
        assert 0 < line["payload_bytes_up"] < line["wire_bytes_up"]
        assert line["clients"] == small.clients
    assert lines[-1]["bits_per_element"] == 2


def test_whole_and_bucket_scopes_count_their_norms(small: Config) -> None:
    for scope, scales in (("whole", 1), (1000, 26)):
        config = replace(small, scope=scope, method="4bit")
        engine, _, lines = play(config, 1)
        assert lines[0]["paper_bits"] == aq.paper_bits(engine.federation.dimension, 15, scales)


def test_s_rises_as_the_loss_falls(small: Config) -> None:
    config = replace(small, interval=1.0, partition="iid", tau=10)
    _, states, lines = play(config, 12)
    f0 = states[0].initial.loss
    for k, line in enumerate(lines):
        fk = states[k].rule_loss
        assert line["s"] == max(2, round(2 * np.sqrt(f0 / fk)))
    assert lines[-1]["s"] > 2


def test_the_round_loss_can_drive_the_rule(small: Config) -> None:
    config = replace(small, interval=1.0, loss="round", partition="iid", evaluate_every=100)
    _, states, lines = play(config, 6)
    assert states[1].schedule.f0 is None
    assert states[2].schedule.f0 == pytest.approx(lines[0]["round_loss"])
    assert lines[5]["s"] == max(2, round(2 * np.sqrt(lines[0]["round_loss"] / lines[4]["round_loss"])))


def test_the_global_loss_weights_clients_by_their_data(small: Config) -> None:
    config = replace(small, loss_samples=0)
    engine = InProcess(Trainer(config, Task.of(config)))
    task, model = engine.trainer.task, models.build("mlp", config.seed)
    x, y = task.train.batch(np.arange(len(task.train.y)))
    with torch.no_grad():
        everything = torch.nn.functional.cross_entropy(model(x), y).item()
    assert engine.evaluate(engine.federation.model).loss == pytest.approx(everything, rel=1e-5)


def test_the_loss_sample_is_fixed_for_the_run(small: Config) -> None:
    engine = InProcess(Trainer(small, Task.of(small)))
    model = engine.federation.model
    assert engine.evaluate(model) == engine.evaluate(model)


def test_the_run_ends_at_the_target_or_at_its_rounds(small: Config) -> None:
    _, states, _ = play(small, 1)
    state = replace(states[-1], latest=replace(states[-1].latest, loss=0.5), latest_round=1)
    assert not server.finished(state, replace(small, target_loss=0.4))
    assert server.finished(state, replace(small, target_loss=0.5))
    assert not server.finished(state, replace(small, target_loss=0.0))
    assert server.finished(state, replace(small, rounds=1))
    assert not server.finished(
        replace(state, latest=replace(state.latest, loss=float("nan"))), replace(small, target_loss=9.0)
    )


def test_a_diverged_client_stops_the_round_with_a_sentence(small: Config) -> None:
    with pytest.raises(aq.EngineError, match="lower the learning rate"):
        play(replace(small, eta=1e30), 2)


def test_batchnorm_buffers_are_averaged_and_counted(small: Config, noise_task: Task) -> None:
    config = replace(small, model="resnet18", dataset="cifar-10", clients=2, tau=1, batch_size=4, method="8bit")
    engine, states, lines = play(config, 1, noise_task)
    before, after = states[0].model, states[1].model
    replies = [engine.trainer.train(c, before, Plan(0, 255, config.eta)) for c in range(2)]
    mean = sum(p * aq.decode_float32(r.buffers) for p, r in zip((1 / 3, 2 / 3), replies, strict=True))
    np.testing.assert_allclose(after.buffers, mean, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(before.buffers, after.buffers)
    assert lines[0]["paper_bits"] == aq.paper_bits(11_181_642, 255, 62)  # buffers are not in the paper's count
    frames = sum(len(r.frame) + len(r.buffers) + 4 for r in replies)
    assert lines[0]["wire_bytes_up"] == frames


def test_the_flat_vector_and_the_model_are_one(noise_task: Task, small: Config) -> None:
    config = replace(small, model="resnet18", dataset="cifar-10", clients=2)
    trainer = Trainer(config, noise_task)
    assert trainer.federation.dimension == 11_181_642
    fresh = noise_task.build()
    x, _ = noise_task.train.batch(np.arange(4))
    trainer._net.eval(), fresh.eval()
    with torch.no_grad(), one_thread():
        np.testing.assert_allclose(trainer._net(x).numpy(), fresh(x).numpy(), rtol=1e-4, atol=1e-4)
        trainer._flat.zero_()
        assert not trainer._net(x).any()


def test_the_rule_looks_more_often_but_levels_count_where_every_method_looks(small: Config) -> None:
    config = replace(small, interval=1.0, evaluate_every=3, rounds=5, target_loss=100.0)
    _, states, lines = play(config, 5)
    assert [line["round"] for line in lines if "loss" in line] == [3, 5]
    assert [line["round"] for line in lines if "test_accuracy" in line] == [3, 5]
    assert [line["round"] for line in lines if "rule_loss" in line] == [1, 2, 4]
    assert states[1].rule_loss == lines[0]["rule_loss"]
    assert states[-1].targets["100"]["round"] == 3
    assert [server.finished(state, config) for state in states] == [False, False, False, True, True, True]
