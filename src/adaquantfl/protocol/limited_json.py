"""JSON that a peer sent, which takes no longer to read than its size says."""

from __future__ import annotations

import json
from typing import Any

MOST_DIGITS = 10  # of a number: 4,300 of them, which Python allows, take long to read


def limited_json(text: str | bytes, most: int) -> Any:
    """Return what the JSON of a peer says: short whole numbers and text in lists or objects. ValueError otherwise.

    most: bytes of the text. What it takes to read is proportional to it.
    """
    if len(text) > most:
        raise ValueError(f"it has {len(text):,} bytes; {most:,} is the most")
    try:
        return json.loads(text, parse_int=_short_number, parse_float=_short_number, parse_constant=_short_number)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def _short_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS or not digits.isdecimal():
        raise ValueError(f"a number in it has {len(digits)} characters, or is not a whole number from 0")
    return int(digits)
