"""The models of short runs over every rule, quantizer, downlink, sampling and engine, by their digests.

    python scripts/model_digests.py record FILE.json       # with the code that is imported
    python scripts/model_digests.py compare FILE.json      # exit code 1 where a model differs
    python scripts/model_digests.py compare FILE.json "auto late" eden       # only these

A change of the inside must not change a model. PyTorch's sums differ from one kind of processor to another, so that a
record is compared on the machine that made it: record with the old checkout (PYTHONPATH=OLD/src), compare with the new.
scripts/model_digests.json has the digests of one processor; its "about" says which, and with which versions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import adaquantfl as aq

SMALL = {
    "model": "mlp", "clients": 4, "rounds": 6, "tau": 2, "workers": 1, "evaluate_every": 3, "loss_samples": 64,
}  # fmt: skip
PICTURES = {"examples": 0, "batch_size": 32, "scope": "tensor", "target_loss": 0.0}
COARSE = {"rule.s0": 1, "rule.rounding": "nearest"}  # of the runs of the demo, whatever its preset says
TEN = {"clients": 10, "clients_per_round": 3, "loss": "round"}

TASK = """
import torch
from torch import nn
from torch.utils.data import Dataset
import adaquantfl as aq

class Rows(Dataset):
    def __init__(self, size, seed, faulty):
        generator = torch.Generator().manual_seed(seed)
        self.x, self.faulty = torch.randn(size, 12, generator=generator), faulty
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i] * (1e30 if self.faulty else 1.0), int(self.x[i].sum() > 0)

def net():
    return nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 2))

def task(clients, seed):
    return aq.OwnTask(model=net, loss=nn.CrossEntropyLoss(), test=Rows(50, 99, False),
                      train=[Rows(60 + 20 * c, c, False) for c in range(clients)], classes=("low", "high"))

def faulty(clients, seed):
    return aq.OwnTask(model=net, loss=nn.CrossEntropyLoss(), test=Rows(50, 99, False),
                      train=[Rows(60 + 20 * c, c, c == 1) for c in range(clients)])
"""

RUNS: dict[str, dict[str, Any]] = {
    "adaquant": {},
    "adaquant power literal decay": {
        "rule.rounding": "power", "rule.guard": False, "eta_decay": 0.5, "eta_decay_every": 2,
    },
    "adaquant round loss": {"loss": "round", "loss_smoothing": 0.5, "rule.interval": 2.0},
    "4bit": {"rule": "4bit"},
    "fp32": {"rule": "fp32"},
    "dadaquant": {"rule": "dadaquant", "partition": "dirichlet(0.3)", "rule.patience": 2},
    "feddq": {"rule": "feddq", "quantizer.norm": "linf", "scope": "whole"},
    "rotated": {"quantizer": "rotated"},
    "lattice": {"quantizer": "lattice"},
    "eden": {"quantizer": "eden", "rule": "2bit"},
    "centroid": {"quantizer": "centroid"},
    "terngrad": {"quantizer": "terngrad", "rule": "1bit"},
    "natural": {"quantizer": "natural", "rule": "3bit"},
    "stc": {"quantizer": "stc", "rule": "1bit", "quantizer.sparsity": 20},
    "stc exact": {"quantizer": "stc", "rule": "1bit", "quantizer.sparsity": 20, "downlink": "exact"},
    "nearest": {"quantizer": "nearest"},
    "uniform linf": {"quantizer.norm": "linf"},
    "scope whole": {"scope": "whole"},
    "scope bucket": {"scope": 1000},
    "scope balanced": {"scope": "balanced"},
    "exact": {"downlink": "exact"},
    "exact some clients": {"downlink": "exact", **TEN},
    "uniform sampling": TEN,
    "codec fixed": {"codec": "fixed"},
    "norm limit": {"max_update_norm": 1.046, "min_clients": 1, "rule": "4bit"},
    "norm limit of the median": {"max_update_norm": "1.02x", "min_clients": 1, "downlink": "exact"},
    "clip": {"max_update_norm": "1x", "norm_action": "clip", "downlink": "exact"},
    "median": {"step": "median", "rule": "8bit", "downlink": "exact"},
    "trimmed mean": {"step": "trimmed-mean", "rule": "8bit", "clients": 6, "downlink": "exact"},
    "krum": {"step": "krum", "clients": 6, "downlink": "exact"},
    "cnn exact": {"model": "cnn", "rounds": 3, "downlink": "exact"},
    "two workers": {"workers": 2},
    "own task": {"source": "task", "rule": "adaquant", "rule.rounding": "nearest"},
    "own task with a fault": {"source": "faulty", "min_clients": 2, "downlink": "exact", "rule": "4bit"},
    "gloo": {"engine": "gloo"},
    "gloo stc exact": {
        "engine": "gloo", "quantizer": "stc", "rule": "1bit", "quantizer.sparsity": 20, "downlink": "exact",
    },
    "gloo own task with a fault": {"engine": "gloo", "source": "faulty", "min_clients": 2, "rule": "4bit"},
    "gloo clip": {"engine": "gloo", "max_update_norm": "1x", "norm_action": "clip", "downlink": "exact"},
    "gloo median": {"engine": "gloo", "step": "median", "rule": "8bit", "downlink": "exact"},
    "flower": {"engine": "flower", "downlink": "exact"},
    "flower own task": {"engine": "flower", "source": "task", "rule": "adaquant", "rule.rounding": "nearest"},
    "auto": {"rule": "auto"},
    "auto late": {"rule": "auto", "downlink": "late"},
    "auto late some clients": {"rule": "auto", "downlink": "late", **TEN},
    "auto centroid noise": {"rule": "auto", "quantizer": "centroid", "downlink": "exact"},
    "auto median": {"rule": "auto", "step": "median", "downlink": "exact"},
    "auto uniform": {"rule": "auto", "quantizer": "uniform", "rule.noise": 1.0},
    "fitted": {"quantizer": "fitted", "rule": "3bit"},
    "adaquant undo": {"undo": 1.01, "eta": 0.8},
    "4bit undo exact": {"rule": "2bit", "undo": 1.01, "eta": 1.5, "downlink": "exact"},
    "auto undo late": {"rule": "auto", "undo": 1.01, "eta": 1.5, "downlink": "late"},
    "constant": {"rule": "fixed", "rule.s": 0.25},
    "momentum": {"step": "momentum", "step.eta": 0.7},
    "nesterov": {"step": "nesterov", "downlink": "exact"},
    "adam": {"step": "adam", "step.eta": 0.01},
    "own task auto": {"source": "task"},
    "own task private": {"source": "task", "downlink": "exact", "downlink.private": True, "rule": "2bit"},
    "adamw": {"optimizer": "adamw", "eta": 0.003, "weight_decay": 0.1},
    "gloo auto late": {"engine": "gloo", "rule": "auto", "downlink": "late"},
    "flower auto late": {"engine": "flower", "rule": "auto", "downlink": "late"},
    "flower own task auto": {"engine": "flower", "source": "task"},
}  # fmt: skip


def play(name: str, folder: Path) -> str:
    """The digest of one run's model, or why there is none."""
    keys = {**SMALL, **RUNS[name]}
    engine, source = keys.pop("engine", "local"), keys.pop("source", "")
    if source:
        keys.pop("model")
        (folder / "task.py").write_text(TASK, encoding="utf-8")
        source = f"{folder / 'task.py'}:{source}"
    else:
        keys = {**PICTURES, **({} if "rule" in keys else COARSE), "downlink": "exact", **keys}
    source, out = source or "demo", folder / name.replace(" ", "-")
    try:
        if engine == "local":
            return str((aq.run(source, out, settings=keys).summary or {})["model_sha256"])
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        command = [sys.executable, "-m", "adaquantfl", "run", source, "--engine", engine, "--out", str(out), *sets]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"failed: {done.stderr.strip().splitlines()[-1]}"
        return str(json.loads((out / "summary.json").read_text())["model_sha256"])
    except aq.AdaQuantError as error:
        return f"failed: {error}"


def main(action: str, file: Path, wanted: list[str]) -> int:
    before = json.loads(file.read_text()) if file.exists() else {}
    different = []
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted or RUNS:
            found = play(name, Path(folder))
            if action == "record":
                before[name] = found
                file.write_text(json.dumps(before, indent=2) + "\n")
            elif before.get(name) != found:
                different.append(name)
            print(f"{'DIFFERS  ' if name in different else ''}{name}: {found[:80]}", flush=True)
    print(f"{len(wanted or RUNS)} runs, {len(different)} different: {', '.join(different)}")
    return bool(different)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
