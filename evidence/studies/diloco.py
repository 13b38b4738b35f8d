# mypy: disable-error-code="no-untyped-call"
"""A language model over slow links: eight workers train small GPTs and send outer gradients, as in DiLoCo.

    python -m evidence.studies.diloco --size small --seeds 3          runs what is missing, then prints the table
    python -m evidence.studies.diloco --size large --methods float32,ours

Every worker takes 30 steps of AdamW, or Muon, on its own part of the text, then all of them take an outer step
together. A run that is interrupted is resumed. All methods start from one model, which was trained alone for some
steps.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import adaquantfl as aq
from evidence.studies.senders import METHODS, WORKERS, Method, Vector
from evidence.studies.tasks.gpt import GPT, Text

RECORDS, WORK = Path("evidence") / "records" / "diloco", Path("runs") / "diloco"
INNER_STEPS = 30
CLIP, DECAY, BETAS = 1.0, 0.1, (0.9, 0.95)  # of the inner AdamW
MUON_MOMENTUM = 0.95
LAST_RATE = 0.1  # of the learning rate, at the end of a cosine
GLANCE = 128  # stretches of text on which the loss is measured after a round; at the end it is measured on all


@dataclass(frozen=True)
class Setting:
    """batch: stretches for each worker's step. start: steps before the first outer step, with a batch of 8."""

    gpt: GPT
    rounds: int
    batch: int
    start: int
    rate: float
    checkpoint_every: int


SIZES = {
    "small": Setting(GPT(2, 4, 32, 64), rounds=30, batch=2, start=400, rate=1e-3, checkpoint_every=10),
    "large": Setting(GPT(4, 7, 64, 64), rounds=20, batch=1, start=300, rate=6e-4, checkpoint_every=2),
}


class Trainer:
    """AdamW on models that are rows of a matrix. rate: a multiple of the setting's learning rate."""

    rate: ClassVar[float] = 1.0

    def __init__(self, gpt: GPT, rows: Tensor) -> None:
        self.gpt, self.rows = gpt, nn.Parameter(rows)
        self.rows.grad = torch.zeros_like(rows)
        self.parts = {name: part.detach().requires_grad_() for name, part in gpt.parts(self.rows.data).items()}
        for name, part in gpt.parts(self.rows.grad).items():
            self.parts[name].grad = part
        self.optimizer = torch.optim.AdamW([self.rows], fused=True, betas=BETAS, weight_decay=DECAY)

    def step(self, text: Tensor, rate: float) -> None:
        gradient = self.rows.grad
        assert gradient is not None
        gradient.zero_()
        self.gpt.losses(self.parts, text).sum().backward()
        gradient *= (CLIP / gradient.norm(dim=1, keepdim=True)).clamp(max=1)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """What the optimizer carries from step to step."""
        return self.optimizer.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.optimizer.load_state_dict(state)


class MuonTrainer(Trainer):
    """Muon (Jordan et al. 2024) on the matrices of the layers, and AdamW on the rest, as in MuLoCo.

    Steps have the length of AdamW's (Liu et al. 2025), so that learning rate and decay mean the same. The rate is the
    best of 0.5, 1, 2 and 4 times AdamW's with seed 100.
    """

    rate: ClassVar[float] = 4.0

    def __init__(self, gpt: GPT, rows: Tensor) -> None:
        super().__init__(gpt, rows)
        hidden = [name for name in self.parts if name.endswith(("mix", "out", "wide", "narrow"))]
        self.momenta = {name: torch.zeros_like(self.parts[name]) for name in hidden}

    def step(self, text: Tensor, rate: float) -> None:
        before = {name: self.parts[name].detach().clone() for name in self.momenta}
        super().step(text, rate)
        for name, momentum in self.momenta.items():
            gradient = self.parts[name].grad
            assert gradient is not None
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            direction = orthogonal(gradient.lerp(momentum, MUON_MOMENTUM))
            length = 0.2 * max(direction.shape[-2:]) ** 0.5
            self.parts[name].data.copy_((1 - rate * DECAY) * before[name] - rate * length * direction)

    def state(self) -> dict[str, Any]:
        return {"adamw": super().state(), "momenta": self.momenta}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state["adamw"])
        for name, momentum in self.momenta.items():
            momentum.copy_(state["momenta"][name])


def orthogonal(x: Tensor) -> Tensor:
    """Matrices with singular values near 1 in place of x's: five steps of Muon's Newton-Schulz iteration."""
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


def first_model(setting: Setting, text: Text, seed: int) -> Vector:
    """The model that all methods start from."""
    trainer, generators = Trainer(setting.gpt, setting.gpt.start(seed)[None]), _generators(10_000 + seed)
    for number in range(setting.start):
        batch = text.batch(generators, 1, setting.gpt.context).flatten(0, 1)
        trainer.step(batch[None], setting.rate * min(1, (number + 1) / 50))
    return trainer.rows.detach()[0].numpy().copy()


def loss(gpt: GPT, model: Vector, text: Tensor) -> float:
    """Nats for each letter."""
    with torch.no_grad():
        parts = gpt.parts(torch.from_numpy(model)[None])
        losses = [float(gpt.losses(parts, some[None])) * len(some) for some in text.split(64)]
    return sum(losses) / len(text)


class Run:
    """One method and one seed: what changes from round to round, and a round."""

    def __init__(self, setting: Setting, method: Method, text: Text, model: Vector, seed: int) -> None:
        self.setting, self.method, self.text, self.model, self.seed = setting, method, text, model, seed
        trainer = MuonTrainer if method.muon else Trainer
        self.trainer = trainer(setting.gpt, torch.from_numpy(model).repeat(WORKERS, 1))
        self.generators = _generators(seed)
        self.left_out = np.zeros((WORKERS, len(model) if method.kept else 0), dtype=np.float32)
        self.outer = method.step.init(len(model))
        self.history: list[dict[str, float]] = []

    def round(self) -> None:
        setting, method, lengths = self.setting, self.method, self.setting.gpt.lengths
        self.trainer.rows.data[:] = torch.from_numpy(self.model)
        for number in range(INNER_STEPS):
            done = (len(self.history) + number / INNER_STEPS) / setting.rounds
            rate = self.trainer.rate * setting.rate * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2)
            self.trainer.step(self.text.batch(self.generators, setting.batch, setting.gpt.context), rate)
        total, size, plain = np.zeros(len(self.model)), 0, 0
        for worker, trained in enumerate(self.trainer.rows.detach().numpy()):
            vector = trained - self.model
            if method.kept:
                vector += np.float32(method.kept) * self.left_out[worker]
            sent = method.send(vector, lengths, aq.stream_key(self.seed, len(self.history), worker))
            if method.kept:
                self.left_out[worker] = vector - sent.values
            total, size, plain = total + sent.values, size + sent.size, plain + sent.plain
        update, self.outer = method.step.apply((total / WORKERS).astype(np.float32), self.outer)
        self.model = self.model + update
        glance = loss(setting.gpt, self.model, self.text.validation(setting.gpt.context, GLANCE))
        self.history.append({"round": len(self.history) + 1, "loss": round(glance, 5), "bytes": size, "plain": plain})

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": self.model, "left_out": self.left_out, **{f"outer.{k}": v for k, v in self.outer.items()}}
        torch.save(
            {name: torch.from_numpy(value) for name, value in state.items()}
            | {"inner": self.trainer.state(), "history": self.history}
            | {"generators": [generator.get_state() for generator in self.generators]},
            path.with_suffix(".new"),
        )
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.history, self.model, self.left_out = state["history"], state["model"].numpy(), state["left_out"].numpy()
        self.outer = {name: state[f"outer.{name}"].numpy() for name in self.outer}
        self.trainer.load(state["inner"])
        for generator, known in zip(self.generators, state["generators"], strict=True):
            generator.set_state(known)


def record(size: str, name: str, seed: int, work: Path, out: Path) -> None:
    """Play a run, or resume it, and write its record."""
    target, folder = out / size / name / f"seed-{seed}.json", work / size
    if target.exists():
        return
    setting, text = SIZES[size], Text(WORKERS, seed)
    start = folder / f"start-{seed}.npy"
    if not start.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(start, first_model(setting, text, seed))
    run = Run(setting, METHODS[name], text, np.load(start), seed)
    everything = text.validation(setting.gpt.context, len(text.kept))
    before, checkpoint = loss(setting.gpt, run.model, everything), folder / name / f"seed-{seed}.pt"
    if checkpoint.exists():
        run.load(checkpoint)
    while len(run.history) < setting.rounds:
        run.round()
        print(size, name, seed, run.history[-1], flush=True)
        if len(run.history) % setting.checkpoint_every == 0:
            run.save(checkpoint)
    found = {
        "size": size,
        "method": name,
        "seed": seed,
        "dimension": len(run.model),
        "setting": asdict(setting),
        "start_loss": before,
        "final_loss": loss(setting.gpt, run.model, everything),
        "bytes_up": sum(one["bytes"] for one in run.history),
        "bytes_up_plain": sum(one["plain"] for one in run.history),
        "history": run.history,
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=1) + "\n")
    checkpoint.unlink(missing_ok=True)


def records(size: str, out: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """What is recorded, by method and seed."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name in METHODS:
        runs = [json.loads(path.read_text()) for path in sorted((out / size / name).glob("seed-*.json"))]
        if runs:
            found[name] = {run["seed"]: run for run in runs}
    return found


def table(size: str, out: Path) -> str:
    """As Markdown, over the seeds that float32 has too."""
    lines = [
        "| outer gradients | validation loss | above float32, same seeds | bits per element | times less "
        "| as published | seeds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    found = records(size, out)
    for name, runs in found.items():
        seeds = sorted(runs.keys() & found["float32"].keys())
        if not seeds:
            continue
        losses = [runs[seed]["final_loss"] for seed in seeds]
        above = fmean(runs[seed]["final_loss"] / found["float32"][seed]["final_loss"] - 1 for seed in seeds)
        bits, plain = (fmean(_bits(runs[seed], key) for seed in seeds) for key in ("bytes_up", "bytes_up_plain"))
        cells = [f"{fmean(losses):.4f}", "" if name == "float32" else f"{100 * above:+.2f} %", f"{bits:.3f}"]
        cells += [f"{32 / bits:.0f}x", "" if plain == bits else f"{plain:.3f}", str(len(seeds))]
        lines.append(f"| {METHODS[name].title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _bits(run: dict[str, Any], key: str) -> float:
    return 8 * int(run[key]) / (int(run["dimension"]) * WORKERS * len(run["history"]))


def _generators(seed: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 * seed + worker) for worker in range(WORKERS)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="0.4 million parameters, or 9.7")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--table", action="store_true", help="only print the table of what is recorded")
    options = parser.parse_args(arguments)
    wanted = options.methods.split(",")
    if unknown := [name for name in wanted if name not in METHODS]:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(METHODS)}.")
    torch.set_num_threads(1)  # the same sums on every machine with this version of PyTorch
    if not options.table:
        for seed in range(options.seeds):
            for name in wanted:
                record(options.size, name, seed, options.work, options.out)
    print(table(options.size, options.out))


if __name__ == "__main__":
    main()
