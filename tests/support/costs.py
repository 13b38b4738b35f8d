"""What reading may take: the rows of docs/security.md, and the memory that a piece of work took."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import adaquantfl as aq

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def allowed(message: str, size: int, dimension: int) -> int:
    """The bytes that the table allows for a message of this kind, size and dimension."""
    rows = re.findall(rf"\| {message}\b[^|]*\| (\d+) n \+ (\d+) d \+ (\d+) MB \|", _PAGE.read_text())
    assert len(rows) == 1, f"docs/security.md has {len(rows)} rows for {message!r}"
    each_byte, each_element, megabytes = map(int, rows[0])
    return each_byte * size + each_element * dimension + megabytes * 10**6


def most_taken(work: Callable[[], object]) -> int:
    """The most memory that the work took, whether it was refused or not."""
    tracemalloc.start()
    try:
        work()
    except aq.AdaQuantError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
