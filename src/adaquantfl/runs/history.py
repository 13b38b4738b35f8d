"""Reading a run's history and summary back, as far as they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import DataError


def read_history(path: Path, rounds: int | None = None) -> list[dict[str, Any]]:
    """The lines of a history, one per finished round. rounds: read only this many; later damage does not matter."""
    # A process killed while writing leaves a last line without its line feed; that round did not finish.
    # The same damage anywhere else is not explained by a kill, so it is an error.
    *complete, rest = path.read_bytes().split(b"\n")
    history: list[dict[str, Any]] = []
    for number, raw in enumerate([*complete, rest], start=1):
        if rounds is not None and len(history) == rounds:
            break
        last = number > len(complete)
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            if not (isinstance(line, dict) and all(type(line.get(key)) is int for key in ("round", "wire_bytes_up"))):
                raise ValueError("it is not an object with round and wire_bytes_up")
        except (ValueError, RecursionError) as error:  # covers damaged UTF-8 and damaged JSON
            if last:
                break
            raise DataError(
                f"Line {number} of {path} is damaged ({error}); a line must be one finished round as JSON. "
                "Put it back from a copy, or repeat the run."
            ) from error
        if history and line["round"] <= history[-1]["round"]:
            raise DataError(
                f"Line {number} of {path} is round {line['round']} after round {history[-1]['round']}, but "
                "rounds must increase. Two processes may have written here: repeat the run elsewhere."
            )
        history.append(line)
    return history


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None where there is none yet."""
    if not path.is_file():
        return None
    try:
        summary = json.loads(path.read_bytes())
        if not isinstance(summary, dict):
            raise ValueError("it is not an object")
        return summary
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). Delete it: the run then counts as unfinished.") from error
