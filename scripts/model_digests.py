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
COARSE = {"s0": 1, "rounding": "nearest"}  # of the runs of the demo, whatever its preset says
SURVEYED = {"survey_every": 2, "rounds": 8}
ROLLED_BACK = {"survey_every": 2, "rounds": 6, "undo": 1.01, "rule_s0": 4.0, "eta": 1.5, "harm": 0.5}
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
    "adaquant power literal decay": {"rounding": "power", "guard": False, "eta_decay": 0.5, "eta_decay_every": 2},
    "adaquant round loss": {"loss": "round", "loss_smoothing": 0.5, "interval": 2.0},
    "4bit": {"method": "4bit"},
    "fp32": {"method": "fp32"},
    "dadaquant": {"method": "dadaquant", "partition": "dirichlet(0.3)", "patience": 2},
    "dadaquant-time": {"method": "dadaquant-time", "patience": 1},
    "feddq": {"method": "feddq", "norm": "linf", "scope": "whole"},
    "cost-aware": {"method": "cost-aware", **SURVEYED},
    "cost-aware both": {"method": "cost-aware", "cost": "both", "downlink": "exact", **SURVEYED},
    "cost-aware centroid exact": {
        "method": "cost-aware", "quantizer": "centroid", "scope": "tensor", "downlink": "exact", **SURVEYED,
    },
    "cost-aware takes back": {"method": "cost-aware", "undo": 1.01, "rule_s0": 1.0, "eta": 0.3, **SURVEYED},
    "cost-aware takes back exact": {
        "method": "cost-aware", "undo": 1.01, "rule_s0": 1.0, "eta": 0.3, "downlink": "exact", **SURVEYED,
    },
    "cost-aware rolls back": {"method": "cost-aware", **ROLLED_BACK},
    "cost-aware rolls back exact": {
        "method": "cost-aware", "downlink": "exact", **ROLLED_BACK,
    },
    "cost-aware some clients": {"method": "cost-aware", **SURVEYED, **TEN},
    "rotated": {"quantizer": "rotated"},
    "lattice": {"quantizer": "lattice"},
    "eden": {"quantizer": "eden", "method": "2bit"},
    "centroid": {"quantizer": "centroid"},
    "terngrad": {"quantizer": "terngrad", "method": "1bit"},
    "natural": {"quantizer": "natural", "method": "3bit"},
    "stc": {"quantizer": "stc", "method": "1bit", "sparsity": 20},
    "stc exact": {"quantizer": "stc", "method": "1bit", "sparsity": 20, "downlink": "exact"},
    "nearest": {"quantizer": "nearest"},
    "uniform linf": {"norm": "linf"},
    "scope whole": {"scope": "whole"},
    "scope bucket": {"scope": 1000},
    "scope balanced": {"scope": "balanced"},
    "exact": {"downlink": "exact"},
    "exact some clients": {"downlink": "exact", **TEN},
    "uniform sampling": TEN,
    "sampling by size": {**TEN, "sampling": "size", "partition": "dirichlet(0.5)"},
    "codec fixed": {"codec": "fixed"},
    "bf16": {"precision": "bf16", "rounds": 2},
    "norm limit": {"max_update_norm": 0.45, "min_clients": 1, "method": "4bit"},
    "norm limit of the median": {"max_update_norm": "1.02x", "min_clients": 1, "downlink": "exact"},
    "clip": {"max_update_norm": "1x", "norm_action": "clip", "downlink": "exact"},
    "median": {"step": "median", "method": "8bit", "downlink": "exact"},
    "trimmed mean": {"step": "trimmed-mean", "method": "8bit", "clients": 6, "downlink": "exact"},
    "krum": {"step": "krum", "clients": 6, "downlink": "exact"},
    "cnn exact": {"model": "cnn", "rounds": 3, "downlink": "exact"},
    "two workers": {"workers": 2},
    "own task": {"source": "task", "method": "adaquant"},
    "own task centroid": {"source": "task", "method": "cost-aware", "quantizer": "centroid", **SURVEYED},
    "own task with a fault": {"source": "faulty", "min_clients": 2, "downlink": "exact", "method": "4bit"},
    "gloo": {"engine": "gloo"},
    "gloo stc exact": {
        "engine": "gloo", "quantizer": "stc", "method": "1bit", "sparsity": 20, "downlink": "exact",
    },
    "gloo own task with a fault": {"engine": "gloo", "source": "faulty", "min_clients": 2, "method": "4bit"},
    "gloo clip": {"engine": "gloo", "max_update_norm": "1x", "norm_action": "clip", "downlink": "exact"},
    "gloo median": {"engine": "gloo", "step": "median", "method": "8bit", "downlink": "exact"},
    "flower": {"engine": "flower", "downlink": "exact"},
    "flower own task": {"engine": "flower", "source": "task", "method": "adaquant"},
    "auto": {"method": "auto"},
    "auto late": {"method": "auto", "downlink": "late"},
    "auto late some clients": {"method": "auto", "downlink": "late", **TEN},
    "auto centroid noise": {"method": "auto", "quantizer": "centroid", "downlink": "exact"},
    "auto median": {"method": "auto", "step": "median", "downlink": "exact"},
    "auto uniform": {"method": "auto", "quantizer": "uniform", "noise": 1.0},
    "fitted": {"quantizer": "fitted", "method": "3bit"},
    "adaquant undo": {"undo_always": True, "undo": 1.01, "eta": 0.8},
    "4bit undo exact": {"method": "2bit", "undo_always": True, "undo": 1.01, "eta": 1.5, "downlink": "exact"},
    "auto undo late": {"method": "auto", "undo_always": True, "undo": 1.01, "eta": 1.5, "downlink": "late"},
    "cost-aware late": {"source": "task", "method": "cost-aware", "rounds": 16, "downlink": "exact"},
    "constant": {"method": "constant", "rule_s0": 0.25},
    "momentum": {"step": "momentum", "server_eta": 0.7},
    "nesterov": {"step": "nesterov", "downlink": "exact"},
    "adam": {"step": "adam", "server_eta": 0.01},
    "yogi": {"step": "yogi", "server_eta": 0.01, "downlink": "exact"},
    "own task auto": {"source": "task"},
    "own task private": {"source": "task", "downlink": "exact", "private": True, "method": "2bit"},
    "validation adamw": {"optimizer": "adamw", "eta": 0.003, "validation": 0.1, "prox": 0.1},
    "gloo auto late": {"engine": "gloo", "method": "auto", "downlink": "late"},
    "flower auto late": {"engine": "flower", "method": "auto", "downlink": "late"},
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
        keys = {**COARSE, **keys}
    source, out = source or "demo", folder / name.replace(" ", "-")
    try:
        if engine == "local":
            return str((aq.run(source, out, **keys).summary or {})["model_sha256"])
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
