"""The paper's six panels, run here: what has a record is skipped, what was interrupted goes on, each end is recorded.

Work goes on in one folder (with its checkpoints); a finished run's configuration, history and summary, and the commits
of the code that made it, are copied to the records' folder, which is small text and belongs in the repository.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import METHODS, load_config
from ..errors import ConfigError
from ..federated.history import RunDirectory
from ..names import unknown
from . import runner
from .comparison import Job, check_same
from .runner import Observer

# In the order in which they are worth having.
PANELS = (
    "fmnist-cnn-iid",
    "cifar-resnet18-iid",
    "fmnist-cnn-noniid",
    "fmnist-cnn-iid-decay",
    "cifar-resnet18-iid-decay",
    "cifar-resnet18-noniid",
)
PANEL_METHODS = ("adaquant", "2bit", "4bit", "8bit", "16bit", "fp32")
RECORDS = Path("results") / "paper"
WORK = Path("runs") / "paper"


def panel_jobs(panel: str, methods: Sequence[str], changes: Mapping[str, Any], work: Path) -> list[Job]:
    """The runs of a panel, or of all of them for "all", checked before the first one starts."""
    if panel != "all" and panel not in PANELS:
        raise ConfigError(unknown("panel", panel, (*PANELS, "all")))
    for method in methods:
        if method not in METHODS:
            raise ConfigError(unknown("method", method, METHODS))
    return [
        Job(load_config(name, {**changes, "method": method}), work / name / method)
        for name in (PANELS if panel == "all" else (panel,))
        for method in methods or PANEL_METHODS
    ]


def carry_out(job: Job, records: Path, work: Path, observer: Observer | None) -> Path | None:
    """Play one run to its end and record it. Returns the record, or None if it had one already."""
    record = records / job.out.relative_to(work)
    if (record / "summary.json").is_file():
        return None
    job.out.mkdir(parents=True, exist_ok=True)
    commits = job.out / "commits.txt"
    with commits.open("a") as file:
        file.write(f"{current_commit()}\n")
    if RunDirectory(job.out).is_run:
        check_same(job)
        summary = runner.resume(job.out, observer=observer)
    else:
        summary = runner.run(job.config, job.out, observer)
    made_with = list(dict.fromkeys(commits.read_text().split("\n")[:-1]))
    record.mkdir(parents=True, exist_ok=True)
    for name in ("config.toml", "history.jsonl"):
        shutil.copyfile(job.out / name, record / name)
    # The summary comes last: with it the record counts as complete.
    text = json.dumps({**summary, "commits": made_with}, indent=2)
    (record / "summary.json").write_text(text + "\n", encoding="utf-8")
    return record


def current_commit() -> str:
    """The commit of the code that runs, marked where files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parents[1]
    try:
        commit = _git(here, "rev-parse", "HEAD")
        return commit + (" with changes" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
