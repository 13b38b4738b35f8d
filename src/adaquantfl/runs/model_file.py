"""The model that a run ends with, as plain PyTorch reads it: names and tensors, nothing of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import checkpoint, durable
from ..errors import CheckpointError, ConfigError
from ..protocol.state import ServerState
from .config import run_config

if TYPE_CHECKING:
    from torch import Tensor

FILE = "model.safetensors"
_SUFFIXES = (".safetensors", ".pt")


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict: safetensors, or what `torch.save` writes where the name ends in .pt."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if path.suffix == ".pt":
        durable.write(path, lambda temporary: torch.save(dict(tensors), temporary))
        return
    try:
        durable.write(path, lambda temporary: save_file(dict(tensors), temporary, metadata={"format": "pt"}))
    except SafetensorError as error:  # its words for a full disk, too
        raise OSError(f"{path} cannot be written ({error})") from error


def read(run: Path) -> dict[str, Tensor]:
    """The state dict of a run's last model; of one that is not finished, the model of its checkpoint."""
    config = run_config(run)
    if (run / FILE).is_file():
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(run / FILE)
        except SafetensorError as error:
            raise CheckpointError(
                f"{run / FILE} is damaged ({error}). Remove it: the checkpoint holds the model too."
            ) from None
    saved = checkpoint.load(run / "checkpoint")
    if saved is None:
        raise CheckpointError(f"{run} has no model yet: neither {FILE} nor a checkpoint. Wait for its first one.")
    from ..training.task import Task
    from ..training.trainer import Trainer

    state = ServerState.of(saved["server"])
    config = replace(config, device="cpu")
    return Trainer(config, Task.of(config)).state_dict(state.layout.join(state.trajectory.model))


def export(run: Path, out: Path) -> None:
    """Write a run's model to a file of its own."""
    if out.suffix not in _SUFFIXES:
        raise ConfigError(f"{out}: the file's name ends in {' or '.join(_SUFFIXES)}, which says how it is written.")
    if out.exists():
        raise ConfigError(f"{out} exists already. Choose another name, or remove it.")
    tensors = read(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(tensors, out)
