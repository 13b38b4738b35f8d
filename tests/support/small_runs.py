"""Settings of trainings that take a second or less, and what their folders hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {"model": "mlp", "clients": 2, "tau": 2, "rounds": 4, "loss_samples": 16, "workers": 1}


def options(settings: Mapping[str, Any]) -> list[str]:
    """The settings as arguments of the command line."""
    return [f"--set={key}={value}" for key, value in settings.items()]


def history(run: Path) -> list[dict[str, Any]]:
    """The rounds of a run directory."""
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


def summary(run: Path) -> dict[str, Any]:
    """The summary of a run directory."""
    return dict(json.loads((run / "summary.json").read_text()))


def without_times(run: Path) -> list[dict[str, Any]]:
    """The rounds without what differs from one execution to the next."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history(run)]


def interrupt_after(rounds: int) -> Callable[[Any, Any, dict[str, Any] | None], None]:
    """An observer that presses Ctrl-C once so many rounds are done."""

    def observer(config: Any, state: Any, line: dict[str, Any] | None) -> None:
        if line and line["round"] == rounds:
            raise KeyboardInterrupt

    return observer
