"""What a run wrote down, for tests that compare runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's history."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    """The same without how long each round took."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines(folder)]


def interrupt_after(rounds: int) -> Callable[[Any, Any, dict[str, Any] | None], None]:
    """An observer that presses Ctrl-C once so many rounds are done."""

    def observer(config: Any, state: Any, line: dict[str, Any] | None) -> None:
        if line and line["round"] == rounds:
            raise KeyboardInterrupt

    return observer
