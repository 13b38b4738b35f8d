"""The run's state on disk: one file, replaced atomically, so that a kill leaves either the old or the new one."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from ..protocol.downlink import Downlink
from ..protocol.ledger import Ledger
from ..protocol.messages import Evaluation, Model
from ..protocol.server import RunState
from ..rules import ScheduleState, Survey

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
        "simulated_seconds": state.simulated_seconds,
        "targets": state.targets,
        "survey": state.survey and vars(state.survey),
        "downlink_schedule": state.downlink_schedule and state.downlink_schedule.to_dict(),
    }
    arrays: dict[str, npt.NDArray[Any]] = {"weights": state.model.weights, "buffers": state.model.buffers}
    if state.previous is not None:
        arrays["previous_weights"], arrays["previous_buffers"] = state.previous.weights, state.previous.buffers
    if state.remainder is not None:
        arrays["remainder"] = state.remainder
    arrays |= {f"kept_{client}": vector for client, vector in state.kept.items()}
    if state.downlink is not None:
        way = state.downlink
        meta["downlink"] = {"round": way.round, "digest": way.digest.hex(), "steps": [len(step) for step in way.steps]}
        arrays["steps"] = np.frombuffer(b"".join(way.steps), dtype=np.uint8)
        arrays["holds"] = np.array(list(way.holds.items()), dtype=np.int64).reshape(-1, 2)
    path, temporary = folder / "state.npz", folder / "state.npz.tmp"
    with temporary.open("wb") as file:
        np.savez(file, meta=np.array(json.dumps(meta)), **arrays)  # type: ignore[arg-type] # its stub has no **arrays
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
            remainder = file.get("remainder")
            before = (file["previous_weights"], file["previous_buffers"]) if "previous_weights" in file else None
            downlink = _downlink(meta["downlink"], file["steps"], file["holds"]) if "downlink" in meta else None
            kept = {int(name[5:]): file[name] for name in file.files if name.startswith("kept_")}
            second = meta.get("downlink_schedule")
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
            survey=_survey(meta.get("survey")),
            previous=before and Model(*before),
            downlink=downlink,
            remainder=remainder,
            downlink_schedule=ScheduleState(**second) if second else None,
            kept=kept,
            seconds=meta["seconds"],
            simulated_seconds=meta.get("simulated_seconds", 0.0),
            targets=meta["targets"],
        )
    except CheckpointError:
        raise
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(
            f"{path} is damaged ({error}). Remove it to start this run again from round 0."
        ) from error


def _survey(meta: dict[str, Any] | None) -> Survey | None:
    if not meta:
        return None
    levels, errors, costs = (tuple(meta[name]) for name in ("levels", "errors", "costs"))
    return Survey(levels, errors, costs, meta["loss"], meta["harm"])


def _downlink(meta: dict[str, Any], steps: npt.NDArray[np.uint8], holds: npt.NDArray[np.int64]) -> Downlink:
    ends = np.cumsum([0, *meta["steps"]])
    pieces = tuple(steps[a:b].tobytes() for a, b in itertools.pairwise(ends))
    return Downlink(meta["round"], bytes.fromhex(meta["digest"]), pieces, {int(c): int(r) for c, r in holds})
