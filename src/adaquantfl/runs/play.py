"""A run from Python: what `adaquantfl run` does, with its record as the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import load_config

if TYPE_CHECKING:
    from .records import RunRecord


def run(source: str | Path, out: str | Path, **changes: Any) -> RunRecord:
    """Train a preset (by name) or a TOML file (by path) with some keys changed, into the folder `out`.

    Returns its record: `history` has a line for each round, `summary` what it came to, `series("loss")` a curve
    against bits. Called again, it resumes where it was interrupted; a finished run is only read. docs/configuration.md
    lists the keys. It needs the extra `train`; a script calls it under `if __name__ == "__main__":`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     record = run("demo", Path(folder, "mine"), model="mlp", clients=2, rounds=3, tau=1, workers=1)
    >>> [line["s"] for line in record.history], record.summary["paper_bits"]
    ([3, 3, 3], 229434)
    """
    config = load_config(source, changes)
    try:
        from . import comparison, jobs, records
    except ModuleNotFoundError as error:
        raise ImportError(f"adaquantfl.run needs {error.name}. Run: pip install 'adaquantfl[train]'") from error
    comparison.play(jobs.Job(config, Path(out)))
    return records.load_run(Path(out))
