"""What a run's summary says of where it was made: versions, the commit of the code, and the processor."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("adaquantfl", "numpy", "torch")


def of_this_process() -> dict[str, Any]:
    """The keys versions, commit and processor of summary.json."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
    return {"versions": versions, "commit": commit(), "processor": processor()}


def commit(root: Path = Path(__file__).parents[3]) -> str:
    """The commit of the checkout that the package runs from, with "-dirty" where files differ from it; "" elsewhere."""
    if not (root / ".git").exists():  # an installed package may lie in somebody else's repository
        return ""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def processor() -> str:
    """The model name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
