"""One update runs through few functions: `benchmarks/path.py` counts them, and they must not become more."""

from __future__ import annotations

import pytest

import path


@pytest.mark.parametrize(("way", "functions", "files"), [("local", 285, 62), ("flower", 425, 68)])
def test_one_update_does_not_run_through_more_code(way: str, functions: int, files: int) -> None:
    found = path.WAYS[way]()
    assert found.functions <= functions, found
    assert found.files <= files, found
