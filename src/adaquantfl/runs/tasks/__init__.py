"""Tasks that ship with the package, as files that `run` and `compare` take: FILE.py:TASK."""

from pathlib import Path

LOGISTIC = Path(__file__).parent / "logistic.py"
