"""A run's model comes out as plain PyTorch reads it: the same outputs, without this package."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import adaquantfl as aq
from adaquantfl.cli import main
from adaquantfl.engines.local import LocalEngine
from adaquantfl.runs import loop, model_file
from adaquantfl.runs.config import Config, load_config
from adaquantfl.training import models
from support.own_tasks import CLASSIFIER, written
from support.small_runs import interrupt_after

PLAIN = """
import json, sys
import torch

state = torch.load(sys.argv[1])
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
net.load_state_dict(state)
torch.set_num_threads(1)
print(json.dumps(net(torch.linspace(-1, 1, 784).view(1, 1, 28, 28)).tolist()))
assert "adaquantfl" not in sys.modules
"""


def outputs(path: Path) -> list[list[float]]:
    """What the exported model says in a process that knows nothing of this package."""
    said = subprocess.run([sys.executable, "-c", PLAIN, str(path)], check=True, capture_output=True, text=True)
    found: list[list[float]] = json.loads(said.stdout)
    return found


def module(run: Path) -> torch.nn.Module:
    net = models.build("mlp", 0)
    net.load_state_dict(model_file.read(run))
    return net.eval()


def test_plain_pytorch_loads_the_exported_model(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "exported" / "mine.pt"
    assert main(["export", str(finished), str(out)]) == 0
    assert main(["export", str(finished), str(tmp_path / "copy.safetensors")]) == 0
    assert (tmp_path / "copy.safetensors").read_bytes() == (finished / model_file.FILE).read_bytes()
    with torch.no_grad():
        expected = module(finished)(torch.linspace(-1, 1, 784).view(1, 1, 28, 28))
    torch.testing.assert_close(torch.tensor(outputs(out)), expected, rtol=1e-5, atol=1e-6)


def test_the_model_is_the_one_that_was_evaluated(finished: Path) -> None:
    net = module(finished)
    test = LocalEngine(load_config(finished / "config.toml")).task.test
    assert test is not None
    x, y = test.batch(torch.arange(len(test)).numpy())
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == y).float().mean().item()
    summary = json.loads((finished / "summary.json").read_text())
    assert accuracy == pytest.approx(summary["final_accuracy"], abs=1e-3)


def test_convolutions_come_out_in_pytorchs_own_order() -> None:
    """In the vector that travels they lie channels last."""
    config = load_config("demo", {"model": "cnn", "clients": 2, "workers": 1})
    trainer = LocalEngine(config).player.trainer
    for name, tensor in models.build("cnn", config.seed).state_dict().items():
        assert torch.equal(trainer.state_dict(trainer.weights())[name], tensor), name


def test_an_unfinished_run_gives_the_model_of_its_checkpoint(small: Config, tmp_path: Path) -> None:
    short = replace(small, rounds=2)
    loop.run(short, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        loop.run(small, tmp_path / "cut", interrupt_after(2))
    assert not (tmp_path / "cut" / model_file.FILE).exists()
    whole, cut = (model_file.read(tmp_path / name) for name in ("whole", "cut"))
    assert same(whole, cut)
    loop.resume(tmp_path / "cut")
    assert not same(whole, model_file.read(tmp_path / "cut")), "it is another model when the run is over"


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_task_of_ones_own_gives_its_statistics_and_frozen_parts_too(tmp_path: Path) -> None:
    path = written(tmp_path, CLASSIFIER)
    aq.run(f"{path}:bag", tmp_path / "run", clients=2, tau=2, rounds=2, batch_size=8, workers=1)
    assert int(model_file.read(tmp_path / "run")["1.num_batches_tracked"]) == 4


@pytest.mark.parametrize(
    ("run", "out", "words"),
    [
        ("nowhere", "mine.pt", "holds no run"),
        ("finished", "mine.onnx", "ends in .safetensors or .pt"),
        ("finished", "taken.pt", "exists already"),
    ],
)
def test_a_mistake_gets_a_sentence(
    finished: Path, tmp_path: Path, run: str, out: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken.pt").write_bytes(b"mine")
    assert main(["export", str(tmp_path / run), str(tmp_path / out)]) == 1
    assert words in capsys.readouterr().err


def test_a_damaged_file_and_a_run_without_a_model_are_named(finished: Path) -> None:
    (finished / model_file.FILE).write_bytes(b"not a model")
    with pytest.raises(aq.CheckpointError, match="is damaged"):
        model_file.read(finished)
    (finished / model_file.FILE).unlink()
    (finished / "checkpoint" / "state.npz").unlink()
    with pytest.raises(aq.CheckpointError, match="has no model yet"):
        model_file.read(finished)
