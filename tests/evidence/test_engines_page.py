"""docs/how-to/hosts.md and docs/how-to/hosts.md say what the records say."""

from __future__ import annotations

from types import ModuleType

import pytest

from evidence.pages import engines_page, flower_page
from evidence.pages.marked import written

ROWS = [
    {"s": s, "clients": 8, "frame_bytes": each, "payload_bytes_up": 8 * each - 80, "frame_bytes_up": 8 * each}
    | {"socket_bytes_up": 8 * each + 2_400, "up_over_frames": 1 + 300 / each}
    | {"model_bytes_down": 53_000_000, "socket_bytes_down": 53_002_000}
    for s, each in ((2, 3_000), (255, 200_000))
]
GLOO = {
    "overhead": {"rounds": 16, "workers": 2, "overhead": 0.12, "ratios": [0.9, 1.3]}
    | {"cpu_overhead": 0.02, "cpu_ratios": [0.97, 1.05]},
    "bytes": ROWS,
    "exact_downlink": {"s": 2, "socket_bytes_up": 26_000, "socket_bytes_down": 190_000},
}


def test_only_large_frames_count_for_the_uplink_s_target() -> None:
    text = engines_page.traffic(GLOO)
    assert "at most 1.0015 times their bytes (target: 1.05)" in text
    assert "at most 300 bytes" in text


def test_a_target_that_is_missed_is_called_so() -> None:
    assert "took 112.0% of the local engine's time" in engines_page.time(GLOO)
    assert "**missed**" in engines_page.time(GLOO)


@pytest.mark.skipif(not engines_page.RECORD.is_file(), reason="a source distribution has no records")
@pytest.mark.parametrize("script", [engines_page, flower_page])
def test_the_page_says_what_the_records_say(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert written(text, script.blocks()) == text, f"run python scripts/{script.__name__}.py"
