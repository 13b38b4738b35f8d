"""The peers' own virtual environment: what is installed into it, how, and what would not install.

Every version is pinned. torch comes first and every later install is held to it: with an open range pip fetches the
CUDA build, gigabytes of it. Where your package index has several builds of torch, point pip at the one for the CPU
(PIP_INDEX_URL or PIP_FIND_LINKS). A large peer of which only one module is measured is installed without its
dependencies.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Install:
    """One call of pip. `alone`: without dependencies."""

    peer: str
    packages: tuple[str, ...]
    alone: bool = False


# numpy: hivemind 1.1.12 turns an array of one element into an int, which later ones refuse.
STEPS = (
    Install("torch", (TORCH, "numpy==2.2.6", "scipy==1.17.1", "scikit-learn==1.9.1")),
    Install("zstandard", ("zstandard==0.25.0",)),
    Install("lz4", ("lz4==4.4.5",)),
    Install("brotli", ("brotli==1.2.1",)),
    Install("blosc2", ("blosc2==4.14.1",)),
    Install("constriction", ("constriction==0.5.0",)),
    Install("bitsandbytes", ("bitsandbytes==0.50.2",)),
    Install("torchao", ("torchao==0.18.0",)),
    Install("gguf", ("gguf==0.19.0",), alone=True),
    Install("zfpy", ("zfpy==1.0.1",)),
    Install("pysz", ("pysz==1.1.0",)),
    Install("fpzip", ("fpzip==1.2.5",)),
    Install("hivemind", ("hivemind==1.1.12",)),
    Install("nvflare", ("nvflare==2.9.0",), alone=True),
    Install("fedlab", ("fedlab==1.3.0",), alone=True),
    Install("openfl", ("openfl==1.9",), alone=True),
    Install("fedml", ("fedml==0.9.6",), alone=True),
)


def arguments(step: Install, constraints: Path) -> list[str]:
    """What pip is called with.

    >>> arguments(Install("zstandard", ("zstandard==0.25.0",), alone=True), Path("torch.txt"))
    ['install', '--quiet', '-c', 'torch.txt', '--no-deps', 'zstandard==0.25.0']
    """
    return ["install", "--quiet", "-c", str(constraints), *(["--no-deps"] if step.alone else []), *step.packages]


def python_of(folder: Path) -> Path:
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def failures(folder: Path) -> dict[str, str]:
    """The peers that did not install when it was last tried, and why."""
    kept = folder / "failed.json"
    found: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    return found


def build(folder: Path, steps: Sequence[Install]) -> None:
    """Make the environment, or add to the one that is there, and write down what did not install."""
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True)
    constraints = folder / "constraints.txt"
    constraints.write_text(TORCH + "\n")
    failed = failures(folder)
    for step in steps:
        print(f"installing {' '.join(step.packages)}", flush=True)
        command = [str(python_of(folder)), "-m", "pip", *arguments(step, constraints)]
        done = subprocess.run(command, capture_output=True, text=True)
        failed.pop(step.peer, None)
        if done.returncode:
            failed[step.peer] = reason(done.stderr)
            print(f"  failed: {failed[step.peer]}", flush=True)
        (folder / "failed.json").write_text(json.dumps(failed, indent=2))


def reason(text: str) -> str:
    """The line of pip's output that says why, without this machine's folders.

    >>> reason("Collecting x" + chr(10) + "ERROR: No matching distribution found for x==9" + chr(10))
    'No matching distribution found for x==9'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    chosen = (errors or lines or ["pip gave no reason"])[-1]
    return without_folders(re.sub(r"^(ERROR|error): ", "", chosen))[:300]


def without_folders(text: str) -> str:
    """Absolute paths and addresses cut down to their last part.

    >>> without_folders("cannot open /home/me/env/lib/libfoo.so: no such file")
    'cannot open libfoo.so: no such file'
    """
    return re.sub(r"(?:\w+://|(?<![\w.])/)(?:[^\s/:'\",;]+/)*([^\s/:'\",;]*)", r"\1", text)
