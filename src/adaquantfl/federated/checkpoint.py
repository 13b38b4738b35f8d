"""The run's state on disk: one file, replaced atomically, so that a kill leaves either the old or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..schedules import ScheduleState
from .ledger import Ledger
from .messages import Evaluation, Model
from .server import RunState

_FORMAT = 1


def save(state: RunState, folder: Path) -> Path:
    """Write the state to folder/state.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "format": _FORMAT,
        "round": state.round,
        "schedule": state.schedule.to_dict(),
        "ledger": vars(state.ledger),
        "initial": vars(state.initial),
        "latest": vars(state.latest),
        "latest_round": state.latest_round,
        "rule_loss": state.rule_loss,
        "round_loss": state.round_loss,
        "seconds": state.seconds,
        "targets": state.targets,
    }
    path, temporary = folder / "state.npz", folder / "state.npz.tmp"
    with temporary.open("wb") as file:
        np.savez(file, weights=state.model.weights, buffers=state.model.buffers, meta=np.array(json.dumps(meta)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return path


def load(folder: Path) -> RunState | None:
    """The state in a folder; None where no checkpoint was written yet."""
    path = folder / "state.npz"
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            meta: dict[str, Any] = json.loads(str(file["meta"]))
            model = Model(file["weights"].astype(np.float32), file["buffers"].astype(np.float32))
        if meta["format"] != _FORMAT:
            raise CheckpointError(f"{path} has format {meta['format']}; this version reads {_FORMAT}.")
        return RunState(
            round=meta["round"],
            model=model,
            schedule=ScheduleState(**meta["schedule"]),
            ledger=Ledger(**meta["ledger"]),
            initial=Evaluation(**meta["initial"]),
            latest=Evaluation(**meta["latest"]),
            latest_round=meta["latest_round"],
            rule_loss=meta["rule_loss"],
            round_loss=meta["round_loss"],
            seconds=meta["seconds"],
            targets=meta["targets"],
        )
    except CheckpointError:
        raise
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(
            f"{path} is damaged ({error}). Remove it to start this run again from round 0."
        ) from error
