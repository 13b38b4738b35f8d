"""The paper's six panels, run here: what has a record is skipped, what was interrupted goes on, each end is recorded.

Work goes on in one folder (with its checkpoints); a finished run's configuration, history and summary, and the commits
of the code that made it, are copied to the records' folder, which is small text and belongs in the repository. A record
of fewer rounds than asked for is made longer from where it stands.

A run whose learning rate falls for the first time after 100 rounds is until then the run with the fixed rate, bit for
bit; those rounds are played once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from adaquantfl.errors import ConfigError, EngineError
from adaquantfl.names import unknown
from adaquantfl.report import holdings, progress
from adaquantfl.rules.registry import methods as known_methods
from adaquantfl.runs import loop as runner
from adaquantfl.runs.config import Config, load_config
from adaquantfl.runs.directory import RunDirectory
from adaquantfl.runs.jobs import Job, check_same
from adaquantfl.runs.loop import Observer
from adaquantfl.runs.presets import read_toml

# In the order in which they are worth having.
PANELS = (
    "fmnist-cnn-iid",
    "cifar-resnet18-iid",
    "fmnist-cnn-noniid",
    "fmnist-cnn-iid-decay",
    "cifar-resnet18-iid-decay",
    "cifar-resnet18-noniid",
)
DECAYING = {"fmnist-cnn-iid": "fmnist-cnn-iid-decay", "cifar-resnet18-iid": "cifar-resnet18-iid-decay"}
PANEL_METHODS = ("adaquant", "2bit", "4bit", "8bit", "16bit", "fp32")
RECORDS = Path("evidence") / "records" / "paper"
WORK = Path("runs") / "paper"
FAILURE = "failure.json"  # in place of a record, where a run did not get to its end


def panel_jobs(panel: str, methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """The runs of a panel, or of all of them for "all", checked before the first one starts."""
    if panel != "all" and panel not in PANELS:
        raise ConfigError(unknown("panel", panel, (*PANELS, "all")))
    for method in methods:
        if method not in known_methods():
            raise ConfigError(unknown("method", method, known_methods()))
    return [
        Job(load_config(name, {**changes, "method": method}), work / name / method)
        for name in (PANELS if panel == "all" else (panel,))
        for method in methods or PANEL_METHODS
    ]


def carry_out(job: Job, records: Path, work: Path, observer: Observer | None) -> Path | None:
    """Play one run to its end and record it. Returns the record, or None if it had one already."""
    record = records / job.out.relative_to(work)
    if _complete(record, job.config):
        return None
    branch = _decaying_twin(job, work)
    if branch is not None and not RunDirectory(branch.out).is_run:
        shared = branch.config.eta_decay_every
        if _play(replace(job.config, rounds=min(shared, job.config.rounds)), job.out, observer)["rounds"] == shared:
            _branch_off(job, branch)
    return _record(_play(job.config, job.out, observer), job.out, record)


def _complete(record: Path, config: Config) -> bool:
    """Whether a record is there and ends where the configuration ends: at its rounds or its target."""
    path = record / "summary.json"
    if not path.is_file():
        return False
    summary = json.loads(path.read_text(encoding="utf-8"))
    return bool(summary["rounds"] >= config.rounds or summary["final_loss"] <= config.target_loss)


def _play(config: Config, out: Path, observer: Observer | None) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "commits.txt").open("a") as file:
        file.write(f"{current_commit()}\n")
    if not RunDirectory(out).is_run:
        return runner.run(config, out, observer)
    check_same(Job(config, out), but_for=("rounds",))
    return runner.resume(out, {"rounds": max(config.rounds, RunDirectory(out).rounds_done)}, observer)


def _decaying_twin(job: Job, work: Path) -> Job | None:
    """The run that is this one until its learning rate falls."""
    panel = job.out.relative_to(work).parts[0]
    if panel not in DECAYING:
        return None
    twin = read_toml(DECAYING[panel])
    config = replace(job.config, **{key: twin[key] for key in ("eta_decay", "eta_decay_every", "rounds")})
    return Job(config, work / DECAYING[panel] / job.config.method)


def _branch_off(job: Job, branch: Job) -> None:
    """Begin the twin as a copy of what is played. Its configuration comes last: with it the folder is a run."""
    (branch.out / "checkpoint").mkdir(parents=True, exist_ok=True)
    for name in ("commits.txt", "history.jsonl", "partition.png", "checkpoint/state.npz"):
        shutil.copyfile(job.out / name, branch.out / name)
    _copy_partition(job.out, branch.out)
    (branch.out / "config.toml").write_text(tomli_w.dumps(branch.config.to_dict()), encoding="utf-8")


def _record(summary: Mapping[str, Any], out: Path, record: Path) -> Path:
    made_with = list(dict.fromkeys((out / "commits.txt").read_text().split("\n")[:-1]))
    record.mkdir(parents=True, exist_ok=True)
    (record / FAILURE).unlink(missing_ok=True)
    for name in ("config.toml", "history.jsonl"):
        shutil.copyfile(out / name, record / name)
    _copy_partition(out, record)
    # The summary comes last: with it the record counts as complete.
    text = json.dumps({**summary, "commits": made_with}, indent=2)
    (record / "summary.json").write_text(text + "\n", encoding="utf-8")
    return record


def _copy_partition(out: Path, to: Path) -> None:
    if (out / holdings.FILE).is_file():  # runs of older versions have none
        shutil.copyfile(out / holdings.FILE, to / holdings.FILE)


def record_failure(record: Path, out: Path, error: str) -> None:
    """Write down that a run stopped, and after how many rounds."""
    record.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rounds": RunDirectory(out).rounds_done, "error": error}, indent=2)
    (record / FAILURE).write_text(text + "\n", encoding="utf-8")


def carry_out_to_any_end(job: Job, records: Path, work: Path) -> None:
    """Play one run and record it; one that diverges is a result too, with its rounds."""
    record = records / job.out.relative_to(work)
    if (record / FAILURE).exists():
        return
    try:
        with progress.shown(quiet=False) as observer:
            carry_out(job, records, work, observer)
    except EngineError as error:
        record_failure(record, job.out, str(error))
        for name in ("config.toml", "history.jsonl"):
            shutil.copyfile(job.out / name, record / name)


def current_commit() -> str:
    """The commit of the code that runs, marked where files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parents[2]
    try:
        commit = _git(here, "rev-parse", "HEAD")
        return commit + (
            " with changes" if _git(here, "status", "--porcelain", "--", "src", "evidence/studies") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
