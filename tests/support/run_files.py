"""Small made-up run directories, so that tables and figures are tested without training."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from adaquantfl.training.methods import KINDS, as_table

DIMENSION = 1_000_000
VERSIONS = {"adaquantfl": "0.1.0", "numpy": "2.1.0"}


def levels_at(method: str, loss: float) -> int | None:
    if method == "fp32":
        return None
    if method == "adaquant":
        return max(1, round(2 * math.sqrt(2.3 / loss)))
    return int(2 ** int(method.removesuffix("bit")) - 1)


def write_run(
    directory: Path,
    method: str = "adaquant",
    seed: int = 0,
    *,
    losses: list[float | None] | None = None,
    finished: bool = True,
    **settings: Any,
) -> Path:
    """`losses` has one entry a round; None is a round that did not evaluate the loss."""
    directory.mkdir(parents=True)
    config: dict[str, Any] = {
        "dataset": "fmnist-sample",
        "model": "cnn",
        "partition": "iid",
        "clients": 4,
        "eta": 0.1,
        "seed": seed,
        **{key: value for key, value in settings.items() if "." not in key and key not in KINDS},
    }
    tables = {"rule": {"name": method, **({"rounding": "power"} if method == "adaquant" else {})}}
    tables |= {key: as_table(value) for key, value in settings.items() if key in KINDS}
    for key, value in settings.items():
        if "." in key:
            tables[key.partition(".")[0]][key.partition(".")[2]] = value
    (directory / "config.toml").write_text(tomli_w.dumps({**config, **tables}), encoding="utf-8")

    if losses is None:
        losses = default_losses(method, seed)
    bits = sent = 0
    loss, history = 2.3, []
    for number, value in enumerate(losses, start=1):
        s = levels_at(method, loss)
        width = 32 if s is None else math.ceil(math.log2(s + 1))
        bits += DIMENSION * width + (0 if s is None else DIMENSION + 32)
        sent += 4 * (DIMENSION * width // (8 if s is None else 200))
        line: dict[str, Any] = {
            "round": number,
            "s": s,
            "bits_per_element": width,
            "lr": 0.1,
            "round_loss": loss,
            "paper_bits": bits,
            "wire_bytes_up": sent,
            "wire_bytes_down": number * 16 * DIMENSION,
            "seconds": {"train": 0.5},
            "clients": 4,
        }
        if tables.get("quantizer", {}).get("name", "uniform") != "uniform":  # the paper's formula does not count it
            del line["paper_bits"], line["bits_per_element"]
        if value is not None:
            loss = value
            line |= {"loss": value, "test_accuracy": 0.92 - 0.25 * min(value, 2.3)}
        history.append(line)
    (directory / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    if finished:
        summary = {
            "rounds": len(history),
            "paper_bits": bits,
            "wire_bytes_up": sent,
            "wire_bytes_down": len(history) * 16 * DIMENSION,
            "initial_loss": 2.3,
            "initial_accuracy": 0.1,
            "final_loss": loss,
            "final_accuracy": 0.9,
            "targets": {},
            "model_sha256": "ab" * 32,
            "seconds": 12.5,
            "versions": VERSIONS,
            "dimension": DIMENSION,
        }
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def default_losses(method: str, seed: int, rounds: int = 60) -> list[float | None]:
    floor = {"adaquant": 0.02, "2bit": 0.12, "4bit": 0.05, "8bit": 0.025, "16bit": 0.02, "fp32": 0.02}[method]
    losses: list[float | None] = []
    for number in range(1, rounds + 1):
        wobble = 1 + 0.06 * math.sin(1.7 * number + 2 * seed)
        decay = math.exp(-number / (9 + seed * 0.3))
        losses.append((floor + 2.28 * decay) * wobble if number % 2 == 0 else None)
    return losses


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """make_run("a/b", "2bit", seed=1, losses=[...]) writes one run directory below tmp_path."""
    return lambda name, *args, **kwargs: write_run(tmp_path / name, *args, **kwargs)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five methods, two seeds each, as `adaquantfl compare` leaves them; shared, so copy it to write."""
    root = tmp_path_factory.mktemp("comparison")
    for method in ("adaquant", "2bit", "4bit", "8bit", "fp32"):
        for seed in range(2):
            write_run(root / method / f"seed-{seed}", method, seed)
    return root
